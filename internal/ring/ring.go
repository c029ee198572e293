// Package ring carries the tokens of one request from a scheduler loop to the
// HTTP handler that answers it: a bounded queue with one producer and one
// consumer, no lock, and no allocation per token.
//
// The one idea: everything the two sides share, indexes, signals, slots and
// text, lies in a single flat region of plain data that any memory can back.
// The Go heap backs it by default; page-locked memory mapped into a device
// works the same way, because nothing in the region is a Go pointer and its
// layout is fixed (see layout.go).
//
// # Sides
//
// Methods belong to a side. Calls of one side must not overlap each other;
// calls of different sides may. Producer: [Ring.TryPush], [Ring.PushReserved],
// [Ring.ArmSpace], [Ring.Space], [Ring.Close]. Consumer: [Ring.Peek],
// [Ring.Advance], [Ring.Done], [Ring.Park], [Ring.Unpark], [Ring.Wake].
// Len, Cap, MaxPayload, Meta and Stats may be called by anyone until Free.
//
// # Sleeping and waking
//
// A side that has nothing to do announces its sleep with a flag in the region,
// looks once more, and only then sleeps. The other side first publishes its
// index and then looks at the flag:
//
//	consumer: parked = 1; read tail; sleep if it has not moved
//	producer: tail = t+1; read parked; if set, clear it and send one wake-up
//
// Go's atomics are sequentially consistent, so the four accesses have one
// order. If the consumer's read of tail comes before the producer's write, the
// producer's read of parked comes after the consumer's write and sees it;
// otherwise the consumer sees the new tail and stays awake. A wake-up is thus
// never lost, and none is sent to a side that is awake. Whoever moves the flag
// from 1 to 0 owns the wake-up, so each sleep gets at most one. The producer's
// wait for space is the same argument with head in the place of tail.
package ring

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// ErrConfig is wrapped by New when a Config cannot be laid out.
var ErrConfig = errors.New("ring: bad config")

// Bounds of a Config. They keep every offset in the region within 32 bits.
const (
	DefaultSlots  = 64
	maxSlots      = 1 << 20
	maxArenaBytes = 1 << 30
	minArenaBytes = 64
)

// Config describes a ring.
type Config struct {
	// Slots is the least number of slots TryPush can fill; 0 means
	// DefaultSlots. Slots+Reserve is rounded up to a power of two and the
	// surplus goes to TryPush.
	Slots int
	// Reserve slots are usable by PushReserved alone, so that a finish
	// record never fails for want of room.
	Reserve int
	// ArenaBytes holds text and aux payloads, rounded up to a power of two;
	// 0 means none. One payload may take a quarter of it (MaxPayload).
	ArenaBytes int
	// Memory backs the region; nil means HeapAllocator.
	Memory Allocator
	// Meta is written to the head of the region once.
	Meta Meta
	// OnSpace, when set, is called instead of sending on Space. It runs on
	// the consumer's goroutine inside Advance and must not block.
	OnSpace func()
}

// Stats counts what tests and metrics want to know about a ring.
type Stats struct {
	Wakeups      uint64 // wake-ups sent to the consumer
	SpaceWakeups uint64 // wake-ups sent to the producer
	Full         uint64 // TryPush and PushReserved calls refused for want of room
	HighWater    uint64 // most slots in use at once, as the producer saw it
}

// Ring is one request's token queue. See the package comment for which
// goroutine may call what.
type Ring struct {
	// Fixed after New.
	memory  Allocator
	region  []byte
	head    *header
	prod    *producerLine
	cons    *consumerLine
	signal  *signalLine
	slots   []Slot // [power of two]
	arena   []byte // [power of two], or empty
	mask    uint64 // len(slots)-1
	limit   uint64 // slots TryPush may have in use
	onSpace func()
	wake    chan struct{} // cap 1, to the consumer
	space   chan struct{} // cap 1, to the producer
	err     error         // written before signal.closed becomes isClosed
	freed   atomic.Bool

	// Each side's own state, on lines of its own: what it last saw of the
	// other side, so that it touches the other's line only when it must.
	_ [lineBytes]byte
	p struct {
		head, arenaHead          uint64
		wakeups, full, highWater atomic.Uint64
	}
	_ [lineBytes]byte
	c struct {
		tail         uint64
		spaceWakeups atomic.Uint64
	}
	_ [lineBytes]byte
}

// New lays out a ring in memory from cfg.Memory. Errors wrap ErrConfig, or
// what the allocator returned.
func New(cfg Config) (*Ring, error) {
	lay, err := planLayout(cfg)
	if err != nil {
		return nil, err
	}
	memory := cfg.Memory
	if memory == nil {
		memory = HeapAllocator{}
	}
	region, err := memory.Alloc(lay.bytes)
	if err != nil {
		return nil, fmt.Errorf("ring: allocate %d bytes: %w", lay.bytes, err)
	}
	base := unsafe.Pointer(unsafe.SliceData(region))
	if len(region) < lay.bytes || uintptr(base)%regionAlign != 0 {
		memory.Free(region)
		return nil, fmt.Errorf("%w: allocator gave %d bytes at alignment %d, want %d at %d",
			ErrConfig, len(region), uintptr(base)&-uintptr(base), lay.bytes, regionAlign)
	}
	clear(region)
	r := &Ring{
		memory:  memory,
		region:  region,
		head:    (*header)(base),
		prod:    (*producerLine)(unsafe.Add(base, producerOff)),
		cons:    (*consumerLine)(unsafe.Add(base, consumerOff)),
		signal:  (*signalLine)(unsafe.Add(base, signalOff)),
		slots:   unsafe.Slice((*Slot)(unsafe.Add(base, slotsOff)), lay.slots),
		arena:   region[lay.arenaOff : lay.arenaOff+lay.arenaBytes : lay.arenaOff+lay.arenaBytes],
		mask:    uint64(lay.slots - 1),
		limit:   uint64(lay.slots - cfg.Reserve),
		onSpace: cfg.OnSpace,
		wake:    make(chan struct{}, 1),
		space:   make(chan struct{}, 1),
	}
	r.head.write(lay, cfg)
	return r, nil
}

// planLayout turns a Config into sizes and offsets.
func planLayout(cfg Config) (layout, error) {
	slots := cfg.Slots
	if slots == 0 {
		slots = DefaultSlots
	}
	if slots < 1 || slots > maxSlots || cfg.Reserve < 0 || cfg.Reserve > maxSlots {
		return layout{}, fmt.Errorf("%w: %d slots, %d reserved", ErrConfig, cfg.Slots, cfg.Reserve)
	}
	if cfg.ArenaBytes < 0 || cfg.ArenaBytes > maxArenaBytes {
		return layout{}, fmt.Errorf("%w: %d arena bytes", ErrConfig, cfg.ArenaBytes)
	}
	lay := layout{slots: ceilPow2(slots + cfg.Reserve)}
	if cfg.ArenaBytes > 0 {
		lay.arenaBytes = ceilPow2(max(cfg.ArenaBytes, minArenaBytes))
	}
	lay.arenaOff = slotsOff + lay.slots*slotBytes
	lay.bytes = lay.arenaOff + lay.arenaBytes
	return lay, nil
}

// ceilPow2 returns the least power of two not below n, for n >= 1.
func ceilPow2(n int) int { return 1 << bits.Len(uint(n-1)) }

// Len returns how many slots wait to be read. From a goroutine of neither side
// it is a snapshot.
func (r *Ring) Len() int {
	head := r.cons.head.Load()
	return int(r.prod.tail.Load() - head)
}

// Cap returns how many slots TryPush can fill before it is refused.
func (r *Ring) Cap() int { return int(r.limit) }

// MaxPayload returns the most bytes text and aux of one slot may have together.
// A quarter of the arena always fits once half of it is free, wherever the
// free half lies: that is what makes the promise of ArmSpace hold.
func (r *Ring) MaxPayload() int { return len(r.arena) / 4 }

// Meta returns the request's metadata as the head of the region holds it.
func (r *Ring) Meta() Meta { return r.head.meta() }

// Stats returns the counters so far.
func (r *Ring) Stats() Stats {
	return Stats{
		Wakeups:      r.p.wakeups.Load(),
		SpaceWakeups: r.c.spaceWakeups.Load(),
		Full:         r.p.full.Load(),
		HighWater:    r.p.highWater.Load(),
	}
}

// Free gives the region back to its allocator. Both sides must be done with
// the ring and with every view Peek returned. Later calls do nothing.
func (r *Ring) Free() {
	if r.freed.CompareAndSwap(false, true) {
		r.memory.Free(r.region)
	}
}
