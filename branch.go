package haiku

import (
	"context"
	"time"
)

// Branch is one of several attempts at the same answer, such as a model and the
// one that stands in for it, of which one at most becomes the answer. It gives
// its Model a StreamWriter of its own without a ring: until the Model has
// something to say nothing reaches the stream, and from then on pieces go
// straight to it.
//
// A piece has something to say if it has text, a delta, a log-probability that was
// asked for, or a finish reason. Others before the first such piece are dropped: an
// attempt may have begun and still leave no trace.
type Branch struct {
	w     StreamWriter  // what the Model writes to; its ring and choices are the trunk's
	trunk *StreamWriter // what the branch grows into
	claim func() bool
	as    string // what the Model is called where its request does not say

	// The producer's side.
	grown   bool  // the claim was granted
	denied  bool  // or not, or the Model has broken a rule
	failure error // that it has broken
	pieces  int
	waits   bool      // for the reader
	since   time.Time // when it does
	delayed time.Duration
}

// Branch prepares an attempt at the stream's answer. claim is called once, on
// the goroutine that pushes the attempt's first piece with something to say, and
// grants or denies it; it must not block. It has to deny all but one, and the
// context of an attempt that it denies must have ended when it returns. Only the
// Model that the stream runs may call Branch, and it returns after all the
// branches' Generate have.
func (w *StreamWriter) Branch(claim func() bool) *Branch {
	b := &Branch{trunk: w, claim: claim}
	b.w.branch, b.w.cancel = b, b.fail
	b.w.opts = w.opts
	b.w.ring, b.w.space, b.w.choices = w.ring, w.space, w.choices
	return b
}

// As says what the attempt's Model is called here, which [StreamWriter.Model] tells
// it where neither its request nor itself does. It is not passed on to the stream.
func (b *Branch) As(name string) { b.as = name }

// Generate has m answer req as [StreamWriter] would: a panic becomes a
// [PanicError], and an answer without a finish reason for every choice is an
// error. It may be called once.
func (b *Branch) Generate(ctx context.Context, m Model, req *Request) error {
	b.w.ctx, b.w.model, b.w.req = ctx, m, req
	err := b.w.ask()
	if b.failure != nil {
		return b.failure
	}
	return err
}

// fail ends the attempt, and no more than that, because its Model breaks a rule.
func (b *Branch) fail(cause error) {
	b.denied = true
	if b.failure == nil {
		b.failure = cause
	}
}

// push is TryPush for the branch's own writer.
func (b *Branch) push(p *Piece, more bool) PushResult {
	switch {
	case b.denied:
		return Gone
	case b.grown:
	case !b.says(p):
		return Pushed
	case !b.grow():
		return Gone
	}
	r := b.trunk.tryPush(p, more)
	if r == Full || b.waits {
		b.wait(r == Full)
	}
	if r != Full {
		b.pieces++
	}
	return r
}

// wait measures how long the reader is behind.
func (b *Branch) wait(full bool) {
	switch {
	case !b.waits:
		b.since = time.Now()
	case !full:
		b.delayed += time.Since(b.since)
	}
	b.waits = full
}

// says reports whether a reader has anything of p.
func (b *Branch) says(p *Piece) bool {
	switch {
	case p.Finish != "" || p.Logprob != nil || len(p.Delta) > 0:
		return true
	case b.w.inVocabulary(p):
		return len(b.w.vocab.Piece(p.ID)) > 0
	default:
		return p.Text != ""
	}
}

// grow makes the branch the stream's producer, and reports whether it may be.
func (b *Branch) grow() bool {
	if !b.claim() {
		b.denied = true
		return false
	}
	b.grown = true
	b.trunk.SetVocabulary(b.w.vocab)
	b.trunk.OnSpace(b.w.onSpace)
	if name := b.w.served.Load(); name != nil {
		b.trunk.SetModel(*name)
	}
	if b.w.Degraded() {
		b.trunk.SetDegraded()
	}
	for i := 0; i < len(b.w.headers); i += 2 {
		b.trunk.SetHeader(b.w.headers[i], b.w.headers[i+1])
	}
	return true
}

// finish is Finish for the branch's own writer.
func (b *Branch) finish(choice int, reason FinishReason) {
	if !b.denied && b.w.choice(choice) != nil && (b.grown || b.grow()) {
		b.trunk.Finish(choice, reason)
	}
}

// Model is the name that the attempt's Model has given itself, empty for none.
// It is known to the claim.
func (b *Branch) Model() string {
	if name := b.w.served.Load(); name != nil {
		return *name
	}
	return ""
}

// Usage is what the attempt used. It may be asked for once Generate has
// returned.
func (b *Branch) Usage() Usage { return b.w.usage }

// Complete reports whether every choice of the answer has its finish reason from
// this branch. It may be asked once Generate has returned.
func (b *Branch) Complete() bool { return b.w.incomplete() == nil }

// Whole reports whether every choice of the stream has its finish reason, so that
// there is nothing left to say. Anybody may ask until the stream's Model has
// returned.
func (b *Branch) Whole() bool {
	w := b.trunk
	for w.branch != nil {
		w = w.branch.trunk
	}
	return w.toEnd.Load() == 0
}

// Pieces is how many pieces have gone to the stream, and delayed for how long the
// reader, not the Model, has kept them waiting. They may be asked for once
// Generate has returned.
func (b *Branch) Pieces() (n int, delayed time.Duration) { return b.pieces, b.delayed }

// Progress is a number that grows with every piece that reaches the stream, and
// whether the Model waits for the reader now. Anybody may ask until the stream's
// Model has returned.
func (b *Branch) Progress() (pieces uint64, waiting bool) {
	return b.trunk.ring.Pushed(), b.trunk.ring.Waiting()
}
