package haikutest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/intelliparadigm/haiku/infer"
)

// Costs is the time a step takes: Step once, and then for each token of a
// prompt and each sequence that decodes. That is how a batch pays: many
// sequences share the first term.
type Costs struct {
	Step           time.Duration
	PrefillToken   time.Duration
	DecodeSequence time.Duration
}

// Config describes a fake executor. The zero value costs nothing and answers
// nothing: every answer is empty.
type Config struct {
	// Pieces are tokens besides the 256 bytes. They may hold any bytes, also
	// parts of UTF-8 characters.
	Pieces []string
	// Answer gives the pieces of the answer to a prompt, which must depend on
	// the prompt alone; what is no piece is spelled in those that there are.
	// The prompt is the text before the last [AnswerMark], without a newline
	// at its end. Nil answers nothing.
	Answer func(prompt string) []string
	Costs  Costs
	Faults []Fault
	// ContextTokens, BlockTokens, Blocks and MaxBatchTokens are those of
	// infer.Spec; 0 means 4096, 16, 4096 and none.
	ContextTokens, BlockTokens, Blocks, MaxBatchTokens int
	// AdapterLoad, when not nil, is called for each adapter before it counts as
	// loaded: it may take its time, fail or panic.
	AdapterLoad func(ctx context.Context, file *infer.AdapterFile) error
}

// Says is the Config of an executor that answers every prompt with pieces, one
// token each.
func Says(pieces ...string) Config {
	return Config{Pieces: pieces, Answer: func(string) []string { return pieces }}
}

// Counts is what an Executor has done.
type Counts struct {
	Steps         int
	PrefillTokens int // tokens computed before the first logits of a sequence
	DecodeTokens  int // tokens computed one at a time after them, or after a beginning that others computed
	LargestBatch  int // items in one step
	OpenSequences int // begun and not released, also after Close
	Adapters      int // loaded now
	Released      int // sequences
	Closed        bool
}

// Executor is a fake GPU: an infer.Executor whose logits follow a script. What
// it computes is a function of a sequence's tokens alone, as the contract
// wants. Its methods may be called concurrently; where the contract forbids
// that, the call is reported as a violation.
type Executor struct {
	cfg   Config
	vocab *vocabulary

	struck []int // [len(cfg.Faults)] how often each has; belongs to the step

	mu         sync.Mutex
	busy       bool
	counts     Counts
	sequences  map[infer.SeqID]*sequence
	released   map[infer.SeqID]bool
	memory     []memory // [Blocks]
	adapters   map[infer.AdapterID]*fakeAdapter
	violations []string
}

// New returns a fake executor.
func New(cfg Config) *Executor {
	setDefault(&cfg.ContextTokens, 4096)
	setDefault(&cfg.BlockTokens, 16)
	setDefault(&cfg.Blocks, 4096)
	return &Executor{
		cfg: cfg, vocab: newVocabulary(cfg.Pieces),
		struck:    make([]int, len(cfg.Faults)),
		sequences: make(map[infer.SeqID]*sequence),
		released:  make(map[infer.SeqID]bool),
		memory:    make([]memory, max(cfg.Blocks, 0)),
		adapters:  make(map[infer.AdapterID]*fakeAdapter),
	}
}

func setDefault(n *int, value int) {
	if *n == 0 {
		*n = value
	}
}

// Text is the tokenizer and chat template to use with the executor.
func (e *Executor) Text() infer.Text { return e.vocab.engineText() }

// Spec describes the fake device.
func (e *Executor) Spec() infer.Spec {
	return infer.Spec{
		Name: "fake", VocabSize: len(e.vocab.pieces), ContextTokens: e.cfg.ContextTokens,
		BlockTokens: e.cfg.BlockTokens, Blocks: e.cfg.Blocks, MaxBatchTokens: e.cfg.MaxBatchTokens,
		HiddenSize: HiddenSize,
	}
}

// Counts returns what has been done so far.
func (e *Executor) Counts() Counts {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.counts
	c.OpenSequences, c.Adapters = len(e.sequences), len(e.adapters)
	return c
}

// Violations lists what the engine did against the contract, empty for a good
// one. After the first hundred it keeps no more.
func (e *Executor) Violations() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.violations)
}

// Step computes a batch in the time its costs say.
func (e *Executor) Step(ctx context.Context, b *infer.Batch) error {
	cost, err := e.begin(b)
	if err != nil {
		return err
	}
	defer e.end()
	if err := wait(ctx, cost); err != nil {
		e.withdraw(b)
		return err
	}
	for i := range b.Items {
		if err := e.compute(ctx, &b.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

var (
	errBusy     = errors.New("haikutest: two steps at a time")
	errTooLarge = errors.New("haikutest: the step has more than MaxBatchTokens tokens")
)

// begin counts a step and returns its cost, if it may happen now.
func (e *Executor) begin(b *infer.Batch) (time.Duration, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.allowed(b); err != nil {
		return 0, err
	}
	e.busy = true
	e.counts.Steps++
	e.counts.LargestBatch = max(e.counts.LargestBatch, len(b.Items))
	cost := e.cfg.Costs.Step
	for i := range b.Items {
		it := &b.Items[i]
		if s := e.sequences[it.Seq]; len(it.Tokens) == 1 && it.Start > 0 && (s == nil || s.sampled) {
			e.counts.DecodeTokens++
			cost += e.cfg.Costs.DecodeSequence
		} else {
			e.counts.PrefillTokens += len(it.Tokens)
			cost += time.Duration(len(it.Tokens)) * e.cfg.Costs.PrefillToken
		}
	}
	for i := range b.Items {
		b.Items[i].Err = e.enter(&b.Items[i])
	}
	return cost, nil
}

// withdraw forgets the sequences that would have begun with a step that does
// not happen.
func (e *Executor) withdraw(b *infer.Batch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range b.Items {
		seq := b.Items[i].Seq
		if s := e.sequences[seq]; s != nil && len(s.tokens) == 0 {
			e.disown(seq, s)
			delete(e.sequences, seq)
		}
	}
}

func (e *Executor) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy = false
}

// wait spends d, which is virtual inside a synctest bubble.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// compute runs one item. Its error is that of the whole step.
func (e *Executor) compute(ctx context.Context, it *infer.Item) error {
	if it.Err != nil {
		return nil
	}
	s := e.store(it)
	if f := e.fault(s, it); f != nil {
		if over, err := f.strike(ctx, it); over {
			return err
		}
	}
	e.hidden(it, s)
	if it.Logits != nil {
		s.sampled = true
		e.logits(it.Logits, s)
	}
	return nil
}

// store keeps an item's tokens at their positions.
func (e *Executor) store(it *infer.Item) *sequence {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fill(it)
	s := e.sequences[it.Seq]
	s.write(it.Start, it.Tokens)
	return s
}

// Release forgets a sequence.
func (e *Executor) Release(seq infer.SeqID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sequences[seq]
	if s == nil {
		return
	}
	if e.busy {
		e.violated("Release of sequence %d during a step", seq)
	}
	e.disown(seq, s)
	delete(e.sequences, seq)
	e.released[seq] = true
	e.counts.Released++
}

// Close ends the executor; it may be called again.
func (e *Executor) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.busy {
		e.violated("Close during a step")
	}
	e.counts.Closed = true
	return nil
}
