// Package fallback lets a smaller model answer when the main one is slow or sick.
package fallback
