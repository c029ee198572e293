package redis

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatIsOwedAgainMeanwhileStaysOwed(t *testing.T) {
	v := versions{known: map[uint16]uint64{}, owed: map[uint16]uint64{}}
	require.Nil(t, v.debt())
	v.owe([]string{"a", "b"})
	debt := v.debt()
	v.owe([]string{"b"})
	v.settle(debt, 7)
	require.Len(t, v.debt(), 1)
	require.Contains(t, v.debt(), slotOf("b"))
	require.Equal(t, []tagVersion{{slotOf("a"), 7}, {slotOf("b"), 7}}, v.of([]string{"a", "b", "a"}))
	v.settle(v.debt(), 8)
	require.Nil(t, v.debt())
}

func TestOnlyAReplyThatFitsIsLearned(t *testing.T) {
	v := versions{known: map[uint16]uint64{}}
	v.learn(v.of([]string{"a", "b"}), "\x01\x00\x00\x00\x00\x00\x00\x00short")
	require.Equal(t, []tagVersion{{slotOf("a"), 1}, {slotOf("b"), 0}}, v.of([]string{"a", "b"}))
}
