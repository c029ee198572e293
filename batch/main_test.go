package batch

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// raceEnabled is set when the race detector, which allocates, is compiled in.
var raceEnabled bool
