package cache

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/internal/likeness"
)

// Answer is a whole answer, as it came and as it is replayed.
type Answer struct {
	// Model is the name of the model that gave it.
	Model string
	// Tokens are those of all choices in the order in which they came.
	Tokens []haiku.Token
	// Usage is what it cost when it was computed.
	Usage haiku.Usage
	// Created is when it was complete.
	Created time.Time
}

// whole reports whether every choice ended by itself, and calls nothing: a call
// is not to be made again.
func (a *Answer) whole() bool {
	for i := range a.Tokens {
		tok := &a.Tokens[i]
		if tok.Finish != "" && tok.Finish != haiku.FinishStop {
			return false
		}
		if strings.Contains(tok.Delta, `"tool_calls"`) || strings.Contains(tok.Delta, `"function_call"`) {
			return false
		}
	}
	return true
}

// text is what all choices say, one after the other.
func (a *Answer) text() string {
	var b strings.Builder
	last := 0
	for _, tok := range slices.SortedStableFunc(slices.Values(a.Tokens), func(x, y haiku.Token) int { return x.Choice - y.Choice }) {
		if tok.Choice != last {
			b.WriteByte('\n')
			last = tok.Choice
		}
		b.WriteString(tok.Text)
	}
	return b.String()
}

// bytes is about what an answer takes in memory.
func (a *Answer) bytes() int64 {
	n := int64(unsafe.Sizeof(*a)) + int64(len(a.Model))
	for i := range a.Tokens {
		n += int64(unsafe.Sizeof(a.Tokens[i])) + int64(len(a.Tokens[i].Text)+len(a.Tokens[i].Delta))
	}
	return n
}

// Record is one write: an answer and all that is known about when it may be
// used. Every tier that can find it leads to the same Record, and it is visible
// in all of them or in none: that is one atomic value.
type Record struct {
	epoch    uint64 // of the write, from 1
	key      Key
	answer   atomic.Pointer[Answer] // nil without one, and once hidden: what is in no tier holds no memory
	route    *Route
	expires  time.Time // here
	ends     time.Time // of the entry's whole life, also in the shared level
	tags     []tag
	state    atomic.Uint32
	trust    *likeness.Entry // what the budget has learned of it; nil without one
	foreign  bool            // fetched from the shared level
	draw     float64         // in [0,1), when among others it is computed anew
	renewing atomic.Bool     // an answer is being computed that will take its place
	evicted  *atomic.Int64   // counts the records that had to go before their time
}

// The states of a record. It moves from staged to visible, and from both to
// hidden.
const (
	staged  uint32 = iota // being written to the tiers
	visible               // may be used
	hidden                // gone from at least one tier, or never whole
)

// publish makes a staged record visible in all tiers at once, and reports
// whether none has dropped it meanwhile.
func (r *Record) publish() bool { return r.state.CompareAndSwap(staged, visible) }

// Hide makes the record unusable in all tiers. Stores call it for a record that
// they evict or do not take. It may be called by any goroutine, again and again.
func (r *Record) Hide() {
	if r.hide() && r.evicted != nil && time.Now().Before(r.expires) {
		r.evicted.Add(1)
	}
}

// hide is Hide for other reasons than want of room. It reports whether the record
// was visible.
func (r *Record) hide() bool {
	was := r.state.Swap(hidden)
	r.answer.Store(nil)
	return was == visible
}

// hit is an answer that was found, and its record, which may be hidden meanwhile.
type hit struct {
	*Answer
	record *Record
	text   string // the question that it answers, where that is not the one asked
}

// take is the answer of a record, if that may be used.
func (t *Tiers) take(r *Record) (hit, bool) {
	a := r.answer.Load()
	if a == nil || !t.usable(r) {
		return hit{}, false
	}
	return hit{Answer: a, record: r}, true
}

// Bytes is about what the record takes in memory.
func (r *Record) Bytes() int64 {
	n := int64(unsafe.Sizeof(*r))
	if a := r.answer.Load(); a != nil {
		n += a.bytes()
	}
	if r.route != nil {
		n += int64(unsafe.Sizeof(*r.route))
	}
	return n
}
