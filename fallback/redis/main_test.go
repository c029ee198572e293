package redis

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets one goroutine of go-redis be: it waits for a server that is
// gone, and looks once a second whether its client has been closed. Many tests
// run at once, since they wait for servers rather than compute.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}
