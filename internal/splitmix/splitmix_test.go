package splitmix

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMixIsSplitMix64 compares with the first outputs of the generator that is
// seeded with 1234567, as its reference implementation prints them.
func TestMixIsSplitMix64(t *testing.T) {
	state := uint64(1234567)
	for _, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821} {
		require.Equal(t, want, Mix(state))
		state += 0x9e3779b97f4a7c15
	}
}
