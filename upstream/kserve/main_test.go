package kserve

import (
	"testing"

	"go.uber.org/goleak"
)

// raceEnabled is set when the race detector, which allocates, is compiled in.
var raceEnabled bool

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
