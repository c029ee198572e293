package etcd

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets many tests run at once, since they wait for servers rather than
// compute.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
