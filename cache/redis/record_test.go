package redis

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzDecodeTrustsNothing(f *testing.F) {
	record := append(appendHead(nil, writeID{1, 2}, "key", []tagVersion{{3, 4}, {5, 6}}, []byte("value")), "value"...)
	f.Add("key", record)
	f.Add("", []byte(magic))
	f.Add("key", record[:fixedBytes])
	f.Fuzz(func(t *testing.T, key string, record []byte) {
		id, value, ok := decode(key, record)
		if !ok {
			require.Nil(t, value)
			return
		}
		tags := make([]tagVersion, record[28])
		rebuilt := appendHead(nil, id, key, tags, value)
		require.Len(t, record, len(rebuilt)+len(value))
		if len(tags) == 0 {
			require.Equal(t, record, append(rebuilt, value...))
		}
	})
}

func TestEveryFlippedBitIsNoticed(t *testing.T) {
	record := append(appendHead(nil, writeID{1, 2}, "key", []tagVersion{{3, 4}}, []byte("value")), "value"...)
	id, value, ok := decode("key", record)
	require.True(t, ok)
	require.Equal(t, writeID{1, 2}, id)
	require.Equal(t, "value", string(value))
	for bit := range 8 * len(record) {
		record[bit/8] ^= 1 << (bit % 8)
		_, _, ok := decode("key", record)
		require.False(t, ok, "bit %d", bit)
		record[bit/8] ^= 1 << (bit % 8)
	}
	_, _, ok = decode("kez", record)
	require.False(t, ok, "the record of another key")
}
