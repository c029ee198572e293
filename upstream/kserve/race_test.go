//go:build race

package kserve

func init() { raceEnabled = true }
