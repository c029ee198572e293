package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAStepAllocatesNothing(t *testing.T) {
	s := steady(64, 20)
	require.Zero(t, testing.AllocsPerRun(500, func() { s.onward(time.Time{}) }))
}
