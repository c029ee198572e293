package haikutest

import (
	"context"
	"errors"
	"math"
	"runtime"

	"github.com/intelliparadigm/haiku/infer"
)

// FaultKind is a way to fail.
type FaultKind int

// The ways to fail.
const (
	// Fail reports an error for the one sequence.
	Fail FaultKind = iota
	// FailStep reports an error for the step as a whole.
	FailStep
	// Panic panics.
	Panic
	// Exit ends the calling goroutine by runtime.Goexit.
	Exit
	// OutOfMemory reports infer.ErrOutOfMemory for the one sequence.
	OutOfMemory
	// Stall blocks until the step's context ends, or until Until is closed and
	// then computes.
	Stall
	// Hang blocks whatever the context says, as a kernel that cannot be
	// interrupted does, until Until is closed, and then computes.
	Hang
	// NaN yields logits that are not numbers.
	NaN
)

// Fault makes a sequence fail where it says.
type Fault struct {
	Kind FaultKind
	// Match picks sequences by the text of their prompt; nil picks all. While
	// a prompt is not complete it sees the part that is there.
	Match func(prompt string) bool
	// At is the number of the answer's token that fails, 0 for the first.
	At int
	// Position, if positive, is where the sequence fails in place of At: in the
	// step that computes it, be it in the prompt or in the answer. It is how
	// memory runs out for sequences longer than that.
	Position int
	// Times is how often the fault strikes before it is mended; 0 means always.
	Times int
	// Until ends a Stall or a Hang when it is closed.
	Until <-chan struct{}
}

// ErrFault is what Fail and FailStep report.
var ErrFault = errors.New("haikutest: scripted fault")

// fault returns what is to go wrong with an item, nil for nothing. It belongs
// to the step.
func (e *Executor) fault(s *sequence, it *infer.Item) *Fault {
	for i := range e.cfg.Faults {
		f := &e.cfg.Faults[i]
		if f.due(s, it) && (f.Times == 0 || e.struck[i] < f.Times) && (f.Match == nil || f.Match(s.prompt(e.vocab))) {
			e.struck[i]++
			return f
		}
	}
	return nil
}

// due reports whether an item reaches the fault's place in its sequence.
func (f *Fault) due(s *sequence, it *infer.Item) bool {
	if f.Position > 0 {
		return it.Start <= f.Position && f.Position < it.Start+len(it.Tokens)
	}
	return it.Logits != nil && f.At == max(s.made(), 0)
}

// strike lets the fault happen. It reports whether that is all that happens to
// the item, and the error of the step as a whole.
func (f *Fault) strike(ctx context.Context, it *infer.Item) (over bool, err error) {
	switch f.Kind {
	case Fail:
		it.Err = ErrFault
	case OutOfMemory:
		it.Err = infer.ErrOutOfMemory
	case NaN:
		for i := range it.Logits {
			it.Logits[i] = float32(math.NaN())
		}
	case Stall:
		select {
		case <-f.Until:
			return false, nil
		case <-ctx.Done():
			return true, ctx.Err()
		}
	case Hang:
		<-f.Until
		return false, nil
	case Panic:
		panic("haikutest: scripted panic")
	case Exit:
		runtime.Goexit()
	case FailStep:
		return true, ErrFault
	}
	return true, nil
}
