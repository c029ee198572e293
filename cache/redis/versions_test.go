package redis

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatIsOwedAgainMeanwhileStaysOwed(t *testing.T) {
	v := versions{known: map[uint16]uint64{}, owed: map[uint16]uint64{}}
	require.Nil(t, v.debt())
	slots := slotsOf([]string{"a", "b"})
	v.owe(slots)
	debt := v.debt()
	v.owe(slots[1:])
	v.renewed(slots, 7)
	v.settle(debt)
	require.Len(t, v.debt(), 1)
	require.Contains(t, v.debt(), slots[1])
	require.Equal(t, []tagVersion{{slots[0], 7}, {slots[1], 7}}, v.of([]string{"a", "b", "a"}))
	v.settle(v.debt())
	require.Nil(t, v.debt())
}

func TestOnlyAReplyThatFitsIsLearned(t *testing.T) {
	v := versions{known: map[uint16]uint64{}}
	v.learn(v.of([]string{"a", "b"}), "\x01\x00\x00\x00\x00\x00\x00\x00short")
	require.Equal(t, []tagVersion{{slotOf("a"), 1}, {slotOf("b"), 0}}, v.of([]string{"a", "b"}))
}
