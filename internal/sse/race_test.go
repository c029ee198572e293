//go:build race

package sse

func init() { raceEnabled = true }
