package haikutest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/intelliparadigm/haiku/infer"
)

// TestExecutor runs the contract of infer.Executor as a test, with a subtest
// for each rule. open returns a new executor with room for at least four
// sequences of 40 positions and, if it limits that, 64 tokens in a step; the
// suite closes it.
func TestExecutor(t *testing.T, open func(t *testing.T) infer.Executor) {
	t.Helper()
	for _, check := range executorChecks {
		t.Run(check.rule, func(t *testing.T) {
			if err := check.on(open(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// CheckExecutor returns what is wrong with the executors that open makes, as
// TestExecutor would report it, and nil for good ones.
func CheckExecutor(open func() (infer.Executor, error)) error {
	var all []error
	for _, check := range executorChecks {
		exec, err := open()
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		if err := check.on(exec); err != nil {
			all = append(all, fmt.Errorf("%s: %w", check.rule, err))
		}
	}
	return errors.Join(all...)
}

// executorCheck is one rule of the contract and how it is tried.
type executorCheck struct {
	rule string
	run  func(*executorRun) error
}

var executorChecks = []executorCheck{
	{"the spec has positive sizes and never changes", (*executorRun).fixedSpec},
	{"logits do not depend on how a prompt is cut into chunks", (*executorRun).chunks},
	{"logits do not depend on the rest of the batch", (*executorRun).batches},
	{"logits do not depend on where the blocks lie", (*executorRun).scattered},
	{"a sequence can begin with blocks that another has computed", (*executorRun).inherits},
	{"sequences part after what they had in common", (*executorRun).parts},
	{"hidden states depend on the sequence alone, and change nothing", (*executorRun).hiddenStates},
	{"a step may be repeated", (*executorRun).repeats},
	{"a step keeps no reference to its batch", (*executorRun).keepsNothing},
	{"a bad item fails alone", (*executorRun).badItems},
	{"a released sequence leaves nothing behind", (*executorRun).releases},
	{"a step ends with its context and can be made up for", (*executorRun).cancels},
	{"Close may be called twice, and Step not after it", (*executorRun).closes},
}

// on tries the rule on an executor and closes it.
func (c executorCheck) on(exec infer.Executor) error {
	r := &executorRun{exec: exec, spec: exec.Spec()}
	err := r.roomy()
	if err == nil {
		err = r.guarded(c.run)
	}
	if failed := exec.Close(); failed != nil {
		err = errors.Join(err, fmt.Errorf("close: %w", failed))
	}
	return err
}

// executorRun is one check on one executor.
type executorRun struct {
	exec infer.Executor
	spec infer.Spec
	last infer.SeqID
}

// The most that the suite asks of an executor.
const (
	suiteSequences = 4
	suitePositions = 40
	suiteStep      = 64 // tokens
)

// roomy reports what is too small for the suite.
func (r *executorRun) roomy() error {
	s := r.spec
	if s.Name == "" || s.VocabSize <= 0 || s.ContextTokens <= 0 || s.BlockTokens <= 0 || s.Blocks <= 0 || s.MaxBatchTokens < 0 {
		return fmt.Errorf("the spec has no name or a size of zero: %+v", s)
	}
	if s.ContextTokens < suitePositions || s.Blocks < suiteSequences*r.perSequence() ||
		(s.MaxBatchTokens > 0 && s.MaxBatchTokens < suiteStep) {
		return fmt.Errorf("the executor is too small for this suite: %+v", s)
	}
	return nil
}

func (r *executorRun) guarded(check func(*executorRun) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return check(r)
}

// sequence returns an ID that has not been used, as engines do.
func (r *executorRun) sequence() infer.SeqID {
	r.last++
	return r.last
}

// prompt makes n tokens that differ from other prompts' by salt.
func (r *executorRun) prompt(n, salt int) []int32 {
	ids := make([]int32, n)
	low := min(3, r.spec.VocabSize-1) // past the usual control tokens
	for i := range ids {
		ids[i] = int32(low + (i*i*7+i*13+salt*31)%(r.spec.VocabSize-low))
	}
	return ids
}

// perSequence is the number of blocks of a sequence in this suite.
func (r *executorRun) perSequence() int {
	return (suitePositions + r.spec.BlockTokens - 1) / r.spec.BlockTokens
}

// table is the block table number n, of suiteSequences.
func (r *executorRun) table(n int) []int32 {
	blocks := make([]int32, r.perSequence())
	for i := range blocks {
		blocks[i] = int32(n*len(blocks) + i)
	}
	return blocks
}

// item computes tokens from start on, with logits.
func (r *executorRun) item(seq infer.SeqID, start int, tokens, blocks []int32) infer.Item {
	return infer.Item{Seq: seq, Start: start, Tokens: tokens, Blocks: blocks, Logits: make([]float32, r.spec.VocabSize)}
}
