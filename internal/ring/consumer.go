package ring

// Peek returns the oldest record, or ok false when there is none now. text and
// aux are views of the arena, nil when empty; they are valid until Advance and
// must not be written to.
func (r *Ring) Peek() (s Slot, text, aux []byte, ok bool) {
	head := r.cons.head.Load()
	if !r.hasRecord(head) {
		return Slot{}, nil, nil, false
	}
	s = r.slots[head&r.mask]
	from, mid := s.ArenaOff, s.ArenaOff+s.TextLen
	if s.Flags&FlagText != 0 {
		text = r.arena[from:mid:mid]
	}
	if s.Flags&FlagAux != 0 {
		aux = r.arena[mid : mid+s.AuxLen : mid+s.AuxLen]
	}
	return s, text, aux, true
}

// Advance gives the oldest record's slot and payload back to the producer, and
// wakes a producer that waits for room when enough is free. It does nothing
// when the ring is empty.
func (r *Ring) Advance() {
	head := r.cons.head.Load()
	if !r.hasRecord(head) {
		return
	}
	if s := &r.slots[head&r.mask]; s.payload() > 0 {
		r.releasePayload(s)
	}
	r.cons.head.Store(head + 1)
	r.wakeProducer()
}

// Done reports whether the stream is closed and read to its end, and then the
// error it was closed with.
func (r *Ring) Done() (done bool, err error) {
	// closed first: what was pushed before Close is then visible in tail.
	if r.signal.closed.Load() != isClosed || r.hasRecord(r.cons.head.Load()) {
		return false, nil
	}
	return true, r.err
}

// Park announces that the consumer is about to sleep. On true it may wait for
// Wake, beside whatever else it waits for, and must call Unpark afterwards. On
// false there is a record or the stream has closed, and it stays awake.
func (r *Ring) Park() bool {
	r.signal.parked.Store(1)
	if !r.hasRecord(r.cons.head.Load()) && r.signal.closed.Load() != isClosed {
		return true
	}
	r.Unpark()
	return false
}

// Unpark ends a sleep, whatever ended it; from then on no wake-up is sent. If
// the producer was about to send one at that very moment, it may surface in
// the next sleep: a wake-up means look again, not that there is a record.
func (r *Ring) Unpark() {
	if r.signal.parked.CompareAndSwap(1, 0) {
		return
	}
	select {
	case <-r.wake:
	default:
	}
}

// Wake returns the channel, of capacity one, that ends a sleep begun by Park.
func (r *Ring) Wake() <-chan struct{} { return r.wake }

// Poke ends the consumer's sleep, or its next one, without a record: the way
// for a timer to make it look again. Any goroutine may call it until Free.
func (r *Ring) Poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// hasRecord reports whether slot number head has been published. It reads the
// producer's line only when all records seen there have been read.
func (r *Ring) hasRecord(head uint64) bool {
	if head == r.c.tail {
		r.c.tail = r.prod.tail.Load()
	}
	return head != r.c.tail
}

// releasePayload moves the arena's head past the payload of s, and past the
// skipped end before it: payloads are taken back in the order they were placed,
// so one that does not start where the last ended started at offset 0.
func (r *Ring) releasePayload(s *Slot) {
	size := uint64(len(r.arena))
	at := r.cons.arenaHead.Load()
	if off := at & (size - 1); off != uint64(s.ArenaOff) {
		at += size - off
	}
	r.cons.arenaHead.Store(at + s.payload())
}

// wakeProducer sends the wake-up of a producer that waits for room, once there
// is enough of it.
func (r *Ring) wakeProducer() {
	if r.signal.armed.Load() == 0 || !r.roomy() || !r.signal.armed.CompareAndSwap(1, 0) {
		return
	}
	r.c.spaceWakeups.Add(1)
	if r.onSpace != nil {
		r.onSpace()
		return
	}
	select {
	case r.space <- struct{}{}:
	default:
	}
}

// roomy reports whether at least half of the slots and of the arena are free.
// An empty ring always is, so a producer that waits is woken in the end. Either
// side may call it: heads are read before tails, so it errs towards no only
// while the other side is moving, and then the other side calls it again.
func (r *Ring) roomy() bool {
	head, arenaHead := r.cons.head.Load(), r.cons.arenaHead.Load()
	return r.prod.tail.Load()-head <= r.limit/2 &&
		r.prod.arenaTail.Load()-arenaHead <= uint64(len(r.arena)/2)
}
