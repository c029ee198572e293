package outage

import (
	"sync"
	"time"
)

// state is where a breaker stands. closed → open when failures in a row reach
// the threshold; open → probing with the first operation after the pause;
// probing → closed when that one succeeds, → open with a longer pause when it
// fails, → open without a pause when it says nothing.
type state uint8

const (
	closed state = iota
	open
	probing
)

// verdict is what an operation says about the server.
type verdict uint8

const (
	void verdict = iota // nothing: the caller left
	good
	bad
)

// change is what a verdict did to a breaker.
type change uint8

const (
	unchanged change = iota
	wentDown
	wentUp
)

// permit is leave to try one operation, given back with its verdict.
type permit struct{ turn uint64 }

// breaker keeps operations from a server that does not answer. It has no clock
// and no goroutine: its moves are functions of the time it is told. It is safe
// for concurrent use.
type breaker struct {
	threshold       int
	pause, maxPause time.Duration

	mu       sync.Mutex
	state    state
	turn     uint64 // counts moves; a permit of an earlier turn judges nothing
	failures int    // in a row, while closed
	wait     time.Duration
	until    time.Time
	since    time.Time // it went down
}

// allow returns leave for an operation, or false while the server is given up.
func (b *breaker) allow(now time.Time) (permit, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.state {
	case probing:
		return permit{}, false
	case open:
		if now.Before(b.until) {
			return permit{}, false
		}
		b.move(probing)
	}
	return permit{b.turn}, true
}

// done gives a permit back. down is how long the server was given up, for
// wentUp only.
func (b *breaker) done(now time.Time, p permit, v verdict) (c change, down time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.turn != b.turn {
		return unchanged, 0
	}
	if b.state == probing {
		return b.probed(now, v)
	}
	switch v {
	case good:
		b.failures = 0
	case bad:
		if b.failures++; b.failures >= b.threshold {
			b.move(open)
			b.since, b.wait, b.until = now, b.pause, now.Add(b.pause)
			return wentDown, 0
		}
	}
	return unchanged, 0
}

func (b *breaker) probed(now time.Time, v verdict) (change, time.Duration) {
	switch v {
	case good:
		b.move(closed)
		b.failures = 0
		return wentUp, now.Sub(b.since)
	case bad:
		b.wait = min(2*b.wait, max(b.maxPause, b.pause))
		b.until = now.Add(b.wait)
	}
	b.move(open)
	return unchanged, 0
}

func (b *breaker) move(to state) {
	b.state = to
	b.turn++
}

func (b *breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state != closed
}
