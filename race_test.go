//go:build race

package haiku

func init() { raceEnabled = true }
