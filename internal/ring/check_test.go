package ring

import (
	"fmt"
	"unsafe"
)

// raceEnabled is set when the race detector, which allocates, is compiled in.
var raceEnabled bool

// check returns an error for the first invariant of the ring that does not
// hold. Neither side may be inside a call.
func (r *Ring) check() error {
	h := r.head
	if h.magic != regionMagic || h.version != regionVersion || int(h.slots) != len(r.slots) ||
		int(h.arenaBytes) != len(r.arena) || h.slotsOff != slotsOff {
		return fmt.Errorf("header damaged: %+v", *h)
	}
	if uintptr(unsafe.Pointer(h))%regionAlign != 0 {
		return fmt.Errorf("region at %p is not aligned", h)
	}
	head, tail := r.cons.head.Load(), r.prod.tail.Load()
	if head > tail || tail-head > uint64(len(r.slots)) {
		return fmt.Errorf("head %d, tail %d, %d slots", head, tail, len(r.slots))
	}
	if r.p.head > head || r.c.tail > tail || r.c.tail < head {
		return fmt.Errorf("seen head %d of %d, seen tail %d of %d", r.p.head, head, r.c.tail, tail)
	}
	if hw := r.p.highWater.Load(); hw < tail-head || hw > uint64(len(r.slots)) {
		return fmt.Errorf("high water %d with %d in use", hw, tail-head)
	}
	s := r.signal
	if s.parked.Load() > 1 || s.armed.Load() > 1 || s.closed.Load() > isClosed {
		return fmt.Errorf("signals %d %d %d", s.parked.Load(), s.armed.Load(), s.closed.Load())
	}
	if s.parked.Load() == 1 && (head != tail || s.closed.Load() == isClosed) {
		return fmt.Errorf("consumer parked with %d records, closed %d", tail-head, s.closed.Load())
	}
	if s.armed.Load() == 1 && head == tail {
		return fmt.Errorf("producer left waiting on an empty ring")
	}
	return r.checkArena(head, tail)
}

// checkArena walks the live slots and adds up what they own of the arena.
func (r *Ring) checkArena(head, tail uint64) error {
	size := uint64(len(r.arena))
	from, to := r.cons.arenaHead.Load(), r.prod.arenaTail.Load()
	if from > to || to-from > size || r.p.arenaHead > from {
		return fmt.Errorf("arena head %d (seen %d), tail %d of %d", from, r.p.arenaHead, to, size)
	}
	at := from
	for i := head; i != tail; i++ {
		s := r.slots[i&r.mask]
		if (s.Flags&FlagText != 0) != (s.TextLen > 0) || (s.Flags&FlagAux != 0) != (s.AuxLen > 0) {
			return fmt.Errorf("slot %d: flags %b, text %d, aux %d", i, s.Flags, s.TextLen, s.AuxLen)
		}
		if s.payload() == 0 {
			continue
		}
		if off := at & (size - 1); uint64(s.ArenaOff) != off {
			if s.ArenaOff != 0 || off+s.payload() <= size {
				return fmt.Errorf("slot %d: payload at %d, want %d", i, s.ArenaOff, off)
			}
			at += size - off
		}
		if uint64(s.ArenaOff)+s.payload() > size {
			return fmt.Errorf("slot %d: payload %d+%d leaves the arena of %d", i, s.ArenaOff, s.payload(), size)
		}
		at += s.payload()
	}
	if at != to {
		return fmt.Errorf("live payloads end at %d, arena tail is %d", at, to)
	}
	return nil
}
