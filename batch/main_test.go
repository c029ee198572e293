package batch

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// raceEnabled is set when the race detector, which allocates, is compiled in.
var raceEnabled bool

// elapse lets virtual time pass: every caller is in a bubble of synctest.
func elapse(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}
