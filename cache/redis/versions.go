package redis

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"sync"
)

// versions are what a Store knows about tags: the versions it saw last, which
// may be outdated, and the slots whose invalidation has not reached the server.
// Both are bounded by the number of slots. It is safe for concurrent use.
type versions struct {
	mu    sync.Mutex
	known map[uint16]uint64
	owed  map[uint16]uint64 // slot → number of the latest failed Invalidate that named it
	calls uint64
}

// newVersion draws a version, or the number of a write. It is never 0.
func newVersion() uint64 { return rand.Uint64() | 1 }

// distinct returns the slots of tags, each once, with version 0.
func distinct(tags []string) (slots []tagVersion) {
	for _, tag := range tags {
		if slot := slotOf(tag); findSlot(slots, slot) < 0 {
			slots = append(slots, tagVersion{slot: slot})
		}
	}
	return slots
}

// of returns the distinct slots of tags with the versions known.
func (v *versions) of(tags []string) []tagVersion {
	slots := distinct(tags)
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range slots {
		slots[i].version = v.known[slots[i].slot]
	}
	return slots
}

// learn takes the versions of slots from the reply to a write.
func (v *versions) learn(slots []tagVersion, reply string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, t := range slots {
		if at := 8 * i; at+8 <= len(reply) {
			v.known[t.slot] = binary.LittleEndian.Uint64([]byte(reply[at : at+8]))
		}
	}
}

// renewed notes a version that this Store has given to slots.
func (v *versions) renewed(slots []uint16, version uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, slot := range slots {
		v.known[slot] = version
	}
}

// owe notes that an invalidation of slots has failed. One that is under way is
// nobody else's: delivered twice, it would take with it what was written since.
func (v *versions) owe(slots []uint16) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.calls++
	for _, slot := range slots {
		v.owed[slot] = v.calls
	}
}

// debt returns the slots owed, each with the number of its Invalidate, or nil.
func (v *versions) debt() map[uint16]uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.owed) == 0 {
		return nil
	}
	return maps.Clone(v.owed)
}

// settle notes that debt is paid. What has come to be owed again meanwhile stays
// so: what was delivered may have come before entries that must go now.
func (v *versions) settle(debt map[uint16]uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for slot, call := range debt {
		if v.owed[slot] == call {
			delete(v.owed, slot)
		}
	}
}
