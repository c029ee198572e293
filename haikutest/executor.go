package haikutest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
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
	// Stall blocks until the step's context ends.
	Stall
	// NaN yields logits that are not numbers.
	NaN
)

// Fault makes a sequence fail when its answer's token number At is computed.
type Fault struct {
	Kind FaultKind
	// Match picks sequences by the text of their prompt; nil picks all.
	Match func(prompt string) bool
	// At is the number of the token, 0 for the first.
	At int
}

// ErrFault is what Fail and FailStep report.
var ErrFault = errors.New("haikutest: scripted fault")

// Config describes a fake executor. The zero value echoes nothing and costs
// nothing: every answer is empty.
type Config struct {
	// Pieces are tokens besides the 256 bytes. They may hold any bytes, also
	// parts of UTF-8 characters.
	Pieces []string
	// Answer gives the pieces of the answer to a prompt, which must depend on
	// the prompt alone. Nil answers nothing.
	Answer func(prompt string) []string
	Costs  Costs
	Faults []Fault
	// ContextTokens, BlockTokens, Blocks and MaxBatchTokens are those of
	// infer.Spec; 0 means 4096, 16, 4096 and none.
	ContextTokens, BlockTokens, Blocks, MaxBatchTokens int
}

// Counts is what an Executor has done.
type Counts struct {
	Steps         int
	PrefillTokens int // tokens of items with more than one, and of first items
	DecodeTokens  int
	LargestBatch  int // items in one step
	OpenSequences int // begun and not released
	Released      int // sequences
	Closed        bool
}

// Executor is a fake GPU: an infer.Executor whose logits follow a script. What
// it computes is a function of a sequence's tokens alone, as the contract
// wants. Its methods may be called concurrently, which it reports as a
// violation where the contract forbids it.
type Executor struct {
	cfg   Config
	vocab *vocabulary

	mu         sync.Mutex
	busy       bool
	counts     Counts
	sequences  map[infer.SeqID][]int32 // tokens computed so far
	blocks     map[int32]infer.SeqID
	violations []string
}

// New returns a fake executor.
func New(cfg Config) *Executor {
	setDefault(&cfg.ContextTokens, 4096)
	setDefault(&cfg.BlockTokens, 16)
	setDefault(&cfg.Blocks, 4096)
	return &Executor{
		cfg: cfg, vocab: newVocabulary(cfg.Pieces),
		sequences: make(map[infer.SeqID][]int32), blocks: make(map[int32]infer.SeqID),
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
	}
}

// Counts returns what has been done so far.
func (e *Executor) Counts() Counts {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.counts
	c.OpenSequences = len(e.sequences)
	return c
}

// Violations lists what the engine did against the contract, empty for a good
// one.
func (e *Executor) Violations() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.violations)
}

func (e *Executor) violated(format string, args ...any) {
	e.violations = append(e.violations, fmt.Sprintf(format, args...))
}

// Step computes a batch in the time its costs say.
func (e *Executor) Step(ctx context.Context, b *infer.Batch) error {
	cost, err := e.begin(b)
	if err != nil {
		return err
	}
	defer e.end()
	if err := wait(ctx, cost); err != nil {
		return err
	}
	for i := range b.Items {
		if err := e.compute(ctx, &b.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// begin counts a step and checks that it may happen now.
func (e *Executor) begin(b *infer.Batch) (time.Duration, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.counts.Closed {
		e.violated("Step after Close")
		return 0, fmt.Errorf("haikutest: %w", infer.ErrClosed)
	}
	if e.busy {
		e.violated("two steps at a time")
	}
	e.busy = true
	e.counts.Steps++
	e.counts.LargestBatch = max(e.counts.LargestBatch, len(b.Items))
	cost := e.cfg.Costs.Step
	for _, it := range b.Items {
		if it.Start > 0 && len(it.Tokens) == 1 {
			e.counts.DecodeTokens++
			cost += e.cfg.Costs.DecodeSequence
		} else {
			e.counts.PrefillTokens += len(it.Tokens)
			cost += time.Duration(len(it.Tokens)) * e.cfg.Costs.PrefillToken
		}
	}
	return cost, nil
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
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// compute runs one item. Its error is that of the whole step.
func (e *Executor) compute(ctx context.Context, it *infer.Item) error {
	tokens, err := e.store(it)
	if err != nil {
		it.Err = err
		return nil
	}
	prompt, made := e.split(tokens)
	if f := e.fault(prompt, made, it.Logits != nil); f != nil {
		return e.misbehave(ctx, f.Kind, it)
	}
	if it.Logits != nil {
		e.logits(it.Logits, tokens, prompt, made)
	}
	return nil
}

// store keeps an item's tokens at their positions, and checks the item against
// the contract. Its error is the item's own.
func (e *Executor) store(it *infer.Item) ([]int32, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	end := it.Start + len(it.Tokens)
	if err := e.valid(it, end); err != nil {
		return nil, err
	}
	have := e.sequences[it.Seq]
	if it.Start > len(have) {
		e.violated("sequence %d: tokens from position %d and %d are computed", it.Seq, it.Start, len(have))
		return nil, fmt.Errorf("haikutest: position %d is not computed", len(have))
	}
	for _, b := range it.Blocks {
		if owner, taken := e.blocks[b]; taken && owner != it.Seq {
			e.violated("sequences %d and %d share block %d", owner, it.Seq, b)
		}
		e.blocks[b] = it.Seq
	}
	have = append(have[:it.Start:it.Start], it.Tokens...)
	e.sequences[it.Seq] = have
	return have, nil
}

func (e *Executor) valid(it *infer.Item, end int) error {
	switch {
	case len(it.Tokens) == 0 || it.Start < 0:
		return fmt.Errorf("haikutest: an item of %d tokens at %d", len(it.Tokens), it.Start)
	case end > e.cfg.ContextTokens:
		return fmt.Errorf("haikutest: position %d is beyond the context of %d", end-1, e.cfg.ContextTokens)
	case len(it.Blocks)*e.cfg.BlockTokens < end:
		return fmt.Errorf("haikutest: %d blocks do not hold %d positions", len(it.Blocks), end)
	}
	for _, b := range it.Blocks {
		if b < 0 || int(b) >= e.cfg.Blocks {
			return fmt.Errorf("haikutest: block %d of %d", b, e.cfg.Blocks)
		}
	}
	for _, id := range it.Tokens {
		if id < 0 || int(id) >= len(e.vocab.pieces) {
			return fmt.Errorf("haikutest: token %d of %d", id, len(e.vocab.pieces))
		}
	}
	return nil
}

// split finds where the answer begins: after the last answer token. Without
// one there is no scripted answer and made is -1.
func (e *Executor) split(tokens []int32) (prompt string, made int) {
	for i := len(tokens) - 1; i >= 0; i-- {
		if tokens[i] == answerToken {
			return e.vocab.text(tokens[:i]), len(tokens) - 1 - i
		}
	}
	return e.vocab.text(tokens), -1
}

func (e *Executor) fault(prompt string, made int, sampled bool) *Fault {
	for i := range e.cfg.Faults {
		f := &e.cfg.Faults[i]
		if sampled && max(made, 0) == f.At && (f.Match == nil || f.Match(prompt)) {
			return f
		}
	}
	return nil
}

func (e *Executor) misbehave(ctx context.Context, kind FaultKind, it *infer.Item) error {
	switch kind {
	case Fail:
		it.Err = ErrFault
	case OutOfMemory:
		it.Err = infer.ErrOutOfMemory
	case NaN:
		for i := range it.Logits {
			it.Logits[i] = float32(math.NaN())
		}
	case Stall:
		<-ctx.Done()
		return ctx.Err()
	case Panic:
		panic("haikutest: scripted panic")
	case Exit:
		runtime.Goexit()
	case FailStep:
		return ErrFault
	}
	return nil
}

// logits makes the next token of the answer the best by far. Without an answer
// token the next token is a hash of all that came before, never the last.
func (e *Executor) logits(dst []float32, tokens []int32, prompt string, made int) {
	clear(dst)
	if made < 0 {
		hash := uint64(14695981039346656037)
		for _, id := range tokens {
			hash = (hash ^ uint64(id)) * 1099511628211
		}
		dst[uint64(byteToken)+hash>>20%256] = 20
		dst[uint64(byteToken)+hash>>40%256] += 10
		return
	}
	var answer []int32
	if e.cfg.Answer != nil {
		answer = e.vocab.answer(e.cfg.Answer(strings.TrimSuffix(prompt, "\n")))
	}
	next := eosToken
	if made < len(answer) {
		next = answer[made]
	}
	dst[next] = 20
}

// Release forgets a sequence.
func (e *Executor) Release(seq infer.SeqID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, open := e.sequences[seq]; !open {
		return
	}
	if e.busy {
		e.violated("Release of sequence %d during a step", seq)
	}
	e.counts.Released++
	delete(e.sequences, seq)
	for b, owner := range e.blocks {
		if owner == seq {
			delete(e.blocks, b)
		}
	}
}

// Close ends the executor; it may be called again.
func (e *Executor) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counts.Closed = true
	clear(e.sequences)
	clear(e.blocks)
	return nil
}
