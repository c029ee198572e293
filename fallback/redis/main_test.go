package redis

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets one goroutine of go-redis be: it waits for a server that is
// gone, and looks once a second whether its client has been closed.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}
