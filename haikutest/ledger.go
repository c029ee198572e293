package haikutest

import (
	"fmt"
	"slices"

	"github.com/intelliparadigm/haiku/infer"
)

// This file is what an Executor knows of its engine's duties: which calls may
// come when, which positions follow which, and whose the KV blocks are. All of
// it runs with Executor.mu held.

const maxViolations = 100

func (e *Executor) violated(format string, args ...any) {
	if len(e.violations) < maxViolations {
		e.violations = append(e.violations, fmt.Sprintf(format, args...))
	}
}

// allowed reports why a step may not happen.
func (e *Executor) allowed(b *infer.Batch) error {
	if e.counts.Closed {
		e.violated("Step after Close")
		return fmt.Errorf("haikutest: %w", infer.ErrClosed)
	}
	if e.busy {
		e.violated("two steps at a time")
		return errBusy
	}
	tokens := 0
	for i := range b.Items {
		tokens += len(b.Items[i].Tokens)
	}
	if e.cfg.MaxBatchTokens > 0 && tokens > e.cfg.MaxBatchTokens {
		e.violated("a step of %d tokens, at most %d are allowed", tokens, e.cfg.MaxBatchTokens)
		return errTooLarge
	}
	return nil
}

// check reports what makes an item impossible to compute.
func (e *Executor) check(it *infer.Item) error {
	computed := 0
	if s := e.sequences[it.Seq]; s != nil {
		computed = len(s.tokens)
	}
	end := it.Start + len(it.Tokens)
	switch {
	case len(it.Tokens) == 0 || it.Start < 0:
		return fmt.Errorf("an item of %d tokens at %d", len(it.Tokens), it.Start)
	case it.Start >= e.cfg.ContextTokens || end > e.cfg.ContextTokens:
		return fmt.Errorf("position %d is beyond the context of %d", end-1, e.cfg.ContextTokens)
	case it.Start > computed:
		return fmt.Errorf("tokens from position %d where %d are computed", it.Start, computed)
	case len(it.Blocks)*e.cfg.BlockTokens < end:
		return fmt.Errorf("%d blocks do not hold %d positions", len(it.Blocks), end)
	case it.Hidden != nil && len(it.Hidden) != len(it.Tokens)*HiddenSize:
		return fmt.Errorf("room for %d floats of %d hidden states", len(it.Hidden), len(it.Tokens))
	case it.Logits != nil && len(it.Logits) != len(e.vocab.pieces):
		return fmt.Errorf("room for %d logits of %d", len(it.Logits), len(e.vocab.pieces))
	}
	for _, b := range it.Blocks {
		if b < 0 || int(b) >= e.cfg.Blocks {
			return fmt.Errorf("block %d of %d", b, e.cfg.Blocks)
		}
	}
	for _, id := range it.Tokens {
		if id < 0 || int(id) >= len(e.vocab.pieces) {
			return fmt.Errorf("token %d of %d", id, len(e.vocab.pieces))
		}
	}
	return nil
}

// claim makes the blocks of an item those of its sequence s. What has been
// computed stays where it is, and no two sequences that live share a block.
func (e *Executor) claim(it *infer.Item, s *sequence) {
	if slices.Equal(s.blocks, it.Blocks) {
		return
	}
	kept := (it.Start + e.cfg.BlockTokens - 1) / e.cfg.BlockTokens
	if !slices.Equal(s.blocks[:min(kept, len(s.blocks))], it.Blocks[:kept]) {
		e.violated("sequence %d: the blocks below position %d have changed", it.Seq, it.Start)
	}
	e.disown(it.Seq, s)
	s.blocks = slices.Clone(it.Blocks)
	own := make(map[int32]bool, len(s.blocks))
	for _, b := range s.blocks {
		if own[b] {
			e.violated("sequence %d: block %d is twice in its table", it.Seq, b)
		} else if owner, taken := e.owners[b]; taken {
			e.violated("sequences %d and %d share block %d", owner, it.Seq, b)
		}
		own[b] = true
		e.owners[b] = it.Seq
	}
}

// disown gives up the blocks of s.
func (e *Executor) disown(seq infer.SeqID, s *sequence) {
	for _, b := range s.blocks {
		if e.owners[b] == seq {
			delete(e.owners, b)
		}
	}
	s.blocks = nil
}
