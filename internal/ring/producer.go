package ring

// TryPush appends a record with copies of text and aux, and wakes the consumer
// if it sleeps. It returns false when the slots or the arena are full, and
// after Close. The arena fields and FlagText and FlagAux of s are overwritten.
//
// A payload of more than MaxPayload bytes never fits: splitting it is up to
// the caller, as waiting for space would not help.
func (r *Ring) TryPush(s Slot, text, aux []byte) bool {
	if r.signal.closed.Load() != isOpen {
		return false
	}
	tail := r.prod.tail.Load()
	s.clearPayload()
	if !r.hasSlot(tail, r.limit) || !r.place(&s, text, aux) {
		r.p.full.Add(1)
		return false
	}
	r.publish(tail, s)
	return true
}

// PushReserved appends a record without a payload and may use the reserved
// slots. It returns false when even those are full, and after Close.
func (r *Ring) PushReserved(s Slot) bool {
	if r.signal.closed.Load() != isOpen {
		return false
	}
	tail := r.prod.tail.Load()
	if !r.hasSlot(tail, uint64(len(r.slots))) {
		r.p.full.Add(1)
		return false
	}
	s.clearPayload()
	r.publish(tail, s)
	return true
}

// Close ends the stream after everything pushed so far; err is nil for a
// complete answer. The first Close wins, also among concurrent ones.
func (r *Ring) Close(err error) {
	if !r.signal.closed.CompareAndSwap(isOpen, isClosing) {
		return
	}
	r.err = err
	r.signal.closed.Store(isClosed)
	r.wakeConsumer()
}

// ArmSpace asks for a wake-up on Space (or a call of OnSpace) once there is
// room, after TryPush was refused. Room means at least half of the slots and
// half of the arena free, so that a full ring does not wake its producer for
// every token; any payload up to MaxPayload then fits. When that much is free
// already it returns false and the producer need not wait.
//
// A consumer that abandons the ring frees no room: the producer must also
// watch for the request's cancellation.
func (r *Ring) ArmSpace() bool {
	r.signal.armed.Store(1)
	if !r.roomy() {
		return true
	}
	if !r.signal.armed.CompareAndSwap(1, 0) && r.onSpace == nil {
		select { // the consumer was faster; its wake-up says nothing new
		case <-r.space:
		default:
		}
	}
	return false
}

// Space returns the channel, of capacity one, that ArmSpace asks for. A value
// left from an earlier ArmSpace is possible: TryPush again decides.
func (r *Ring) Space() <-chan struct{} { return r.space }

// Pushed returns how many records there have been. Any goroutine may ask until
// Free.
func (r *Ring) Pushed() uint64 { return r.prod.tail.Load() }

// Waiting reports whether the producer has asked for a wake-up that has not come
// yet. Any goroutine may ask until Free.
func (r *Ring) Waiting() bool { return r.signal.armed.Load() != 0 }

// hasSlot reports whether fewer than limit slots are in use. It reads the
// consumer's line only if the last value seen is too old to say yes, or if the
// high-water mark would rise on it; so the mark is exact and the usual push
// stays within the producer's own lines.
func (r *Ring) hasSlot(tail, limit uint64) bool {
	used := tail - r.p.head
	if used < limit && used < r.p.highWater.Load() {
		return true
	}
	r.p.head = r.cons.head.Load()
	return tail-r.p.head < limit
}

// place copies the payload into the arena.
func (r *Ring) place(s *Slot, text, aux []byte) bool {
	n := uint64(len(text) + len(aux))
	at, ok := r.locate(n)
	if !ok || n == 0 {
		return ok
	}
	off := at & uint64(len(r.arena)-1)
	copy(r.arena[off:], text)
	copy(r.arena[off+uint64(len(text)):], aux)
	s.setPayload(uint32(off), len(text), len(aux))
	r.prod.arenaTail.Store(at + n)
	return true
}

// locate finds where in the arena, counted since the start, a payload of n
// bytes goes, and whether there is room for it. A payload is contiguous: if it
// does not fit before the arena's end, that end is skipped, and counted as
// used until the consumer passes it.
func (r *Ring) locate(n uint64) (at uint64, ok bool) {
	if n == 0 {
		return 0, true
	}
	if n > uint64(r.MaxPayload()) {
		return 0, false
	}
	size := uint64(len(r.arena))
	at = r.prod.arenaTail.Load()
	if rest := size - at&(size-1); n > rest {
		at += rest
	}
	if at+n-r.p.arenaHead > size {
		r.p.arenaHead = r.cons.arenaHead.Load()
	}
	return at, at+n-r.p.arenaHead <= size
}

// Room reports whether TryPush would take a record with that many bytes of
// payload now. The consumer can only make more room, so true holds until the
// producer's next push.
func (r *Ring) Room(payloadBytes int) bool {
	if r.signal.closed.Load() != isOpen || !r.hasSlot(r.prod.tail.Load(), r.limit) {
		return false
	}
	_, ok := r.locate(uint64(payloadBytes))
	return ok
}

// publish writes slot number tail and makes it visible.
func (r *Ring) publish(tail uint64, s Slot) {
	r.slots[tail&r.mask] = s
	r.prod.tail.Store(tail + 1)
	if used := tail + 1 - r.p.head; used > r.p.highWater.Load() {
		r.p.highWater.Store(used)
	}
	r.wakeConsumer()
}

// wakeConsumer sends the wake-up of a parked consumer. A full channel already
// holds one, which does as well.
func (r *Ring) wakeConsumer() {
	if r.signal.parked.Load() == 0 || !r.signal.parked.CompareAndSwap(1, 0) {
		return
	}
	r.p.wakeups.Add(1)
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// clearPayload makes s a slot without a payload.
func (s *Slot) clearPayload() {
	s.ArenaOff, s.TextLen, s.AuxLen = 0, 0, 0
	s.Flags &^= FlagText | FlagAux
}

// setPayload records where the arena holds the slot's text and aux.
func (s *Slot) setPayload(off uint32, textLen, auxLen int) {
	s.ArenaOff, s.TextLen, s.AuxLen = off, uint32(textLen), uint32(auxLen)
	if textLen > 0 {
		s.Flags |= FlagText
	}
	if auxLen > 0 {
		s.Flags |= FlagAux
	}
}
