package haikutest

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"
)

// The faults of these tests are scripted; the log would tell of hundreds.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}
