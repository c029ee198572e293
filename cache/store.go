package cache

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/dgraph-io/ristretto/v2"
)

// Store is the memory of the output tier: a bounded map from keys to records.
// An implementation keeps these rules:
//
//   - Its methods may be called concurrently.
//   - Set reports whether a Get that follows would find the record: a store that
//     buffers writes waits for its own, and one that does not take a record says
//     so.
//   - A record that leaves for another reason than Delete, or that is not taken,
//     is told by [Record.Hide].
//   - The bytes of all records stay within the bound it was made with.
type Store interface {
	Get(key Key) (*Record, bool)
	Set(key Key, r *Record, bytes int64, ttl time.Duration) bool
	Delete(key Key)
	// Bytes is about how much the records take that are held.
	Bytes() int64
	Close()
}

// ristrettoStore is a Store on ristretto, whose policy is TinyLFU with sampled
// eviction. Its Set is buffered and may be dropped under contention or refused
// by the policy; here that is waited for and told.
type ristrettoStore struct {
	cache *ristretto.Cache[[]byte, *Record]
}

// meanRecordBytes is a guess by which the frequency counters are sized.
const meanRecordBytes = 2 << 10

// NewRistretto returns a Store of so many bytes on ristretto.
func NewRistretto(maxBytes int64) (Store, error) {
	hide := func(item *ristretto.Item[*Record]) {
		if item.Value != nil {
			item.Value.Hide()
		}
	}
	c, err := ristretto.NewCache(&ristretto.Config[[]byte, *Record]{
		NumCounters: max(10*maxBytes/meanRecordBytes, 1000), MaxCost: maxBytes, BufferItems: 64,
		IgnoreInternalCost: true,
		OnEvict:            hide, OnReject: hide,
		KeyToHash: func(key []byte) (uint64, uint64) {
			return binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[8:])
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	return &ristrettoStore{c}, nil
}

func (s *ristrettoStore) Get(key Key) (*Record, bool) {
	r, ok := s.cache.Get(key[:])
	return r, ok && r != nil && r.key == key
}

func (s *ristrettoStore) Set(key Key, r *Record, bytes int64, ttl time.Duration) bool {
	s.cache.Del(key[:]) // as an update it would be taken whatever its size
	if !s.cache.SetWithTTL(key[:], r, bytes, ttl) {
		r.Hide()
		return false
	}
	s.cache.Wait()
	found, ok := s.Get(key)
	return ok && found == r
}

func (s *ristrettoStore) Delete(key Key) { s.cache.Del(key[:]) }

func (s *ristrettoStore) Bytes() int64 { return s.cache.MaxCost() - s.cache.RemainingCost() }

func (s *ristrettoStore) Close() { s.cache.Close() }
