package haikutest

import (
	"fmt"
	"slices"

	"github.com/intelliparadigm/haiku/infer"
)

// This file is what an Executor knows of its engine's duties: which calls may
// come when, which positions follow which, and what is in the KV blocks. All of
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

// memory is one KV block.
type memory struct {
	tokens  []int32 // of the slots filled, at most BlockTokens
	adapter infer.AdapterID
	scale   float32
	users   []infer.SeqID // that have it in their tables, not released
}

// enter lets an item into the step: it has to be possible, and its table becomes
// that of its sequence. Its error is the item's own.
func (e *Executor) enter(it *infer.Item) error {
	if err := e.check(it); err != nil {
		e.violated("sequence %d: %v", it.Seq, err)
		return fmt.Errorf("haikutest: %w", err)
	}
	s := e.sequences[it.Seq]
	if s == nil {
		if e.released[it.Seq] {
			e.violated("sequence %d: it has been released", it.Seq)
		}
		s = &sequence{mark: -1}
		e.sequences[it.Seq] = s
	}
	if s.step == e.counts.Steps {
		e.violated("sequence %d: two items in one step", it.Seq)
	}
	s.step = e.counts.Steps
	if err := e.adapt(it, s); err != nil {
		return err
	}
	if it.Copy {
		to := &e.memory[it.Blocks[it.Start/e.cfg.BlockTokens]]
		from := &e.memory[it.CopyFrom]
		to.tokens = append(to.tokens[:0], from.tokens[:it.Start%e.cfg.BlockTokens]...)
		to.adapter, to.scale = from.adapter, from.scale
	}
	e.claim(it, s)
	e.inherit(it, s)
	return nil
}

// check reports what makes an item impossible to compute.
func (e *Executor) check(it *infer.Item) error {
	end := it.Start + len(it.Tokens)
	switch {
	case len(it.Tokens) == 0 || it.Start < 0:
		return fmt.Errorf("an item of %d tokens at %d", len(it.Tokens), it.Start)
	case it.Start >= e.cfg.ContextTokens || end > e.cfg.ContextTokens:
		return fmt.Errorf("position %d is beyond the context of %d", end-1, e.cfg.ContextTokens)
	case len(it.Blocks)*e.cfg.BlockTokens < end:
		return fmt.Errorf("%d blocks do not hold %d positions", len(it.Blocks), end)
	case it.Hidden != nil && len(it.Hidden) != len(it.Tokens)*HiddenSize:
		return fmt.Errorf("room for %d floats of %d hidden states", len(it.Hidden), len(it.Tokens))
	case it.Logits != nil && len(it.Logits) != len(e.vocab.pieces):
		return fmt.Errorf("room for %d logits of %d", len(it.Logits), len(e.vocab.pieces))
	case it.Copy && (it.CopyFrom < 0 || int(it.CopyFrom) >= e.cfg.Blocks):
		return fmt.Errorf("a copy of block %d of %d", it.CopyFrom, e.cfg.Blocks)
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
	if computed := e.computed(it); computed < it.Start {
		return fmt.Errorf("tokens from position %d where %d are computed", it.Start, computed)
	}
	return nil
}

// computed is how many positions from the first on, up to the item's start, are
// in its blocks.
func (e *Executor) computed(it *infer.Item) int {
	for position := 0; position < it.Start; position += e.cfg.BlockTokens {
		b := it.Blocks[position/e.cfg.BlockTokens]
		if it.Copy && it.Start-position < e.cfg.BlockTokens {
			b = it.CopyFrom
		}
		if filled := len(e.memory[b].tokens); filled < min(e.cfg.BlockTokens, it.Start-position) {
			return position + filled
		}
	}
	return it.Start
}

// claim makes the blocks of an item those of its sequence s. What has been
// computed stays where it is.
func (e *Executor) claim(it *infer.Item, s *sequence) {
	if slices.Equal(s.blocks, it.Blocks) {
		return
	}
	kept := it.Start / e.cfg.BlockTokens
	if it.Start%e.cfg.BlockTokens != 0 && !it.Copy {
		kept++
	}
	if kept = min(kept, len(s.blocks)); !slices.Equal(s.blocks[:kept], it.Blocks[:kept]) {
		e.violated("sequence %d: the blocks below position %d have changed", it.Seq, it.Start)
	}
	e.disown(it.Seq, s)
	s.blocks = slices.Clone(it.Blocks)
	for i, b := range s.blocks {
		if slices.Contains(s.blocks[:i], b) {
			e.violated("sequence %d: block %d is twice in its table", it.Seq, b)
			continue
		}
		e.memory[b].users = append(e.memory[b].users, it.Seq)
	}
}

// inherit gives a sequence that begins in the middle the tokens before.
func (e *Executor) inherit(it *infer.Item, s *sequence) {
	size := e.cfg.BlockTokens
	for position := 0; position < it.Start; position += size {
		b := it.Blocks[position/size]
		if m := &e.memory[b]; m.adapter != it.Adapter || m.scale != it.AdapterScale {
			e.violated("sequence %d: block %d was computed with adapter %d, its own is %d", it.Seq, b, m.adapter, it.Adapter)
		}
	}
	if len(s.tokens) >= it.Start {
		return
	}
	var before []int32
	for position := 0; position < it.Start; position += size {
		before = append(before, e.memory[it.Blocks[position/size]].tokens[:min(size, it.Start-position)]...)
	}
	s.write(0, before)
}

// fill writes an item's tokens to its blocks, which nobody else may have.
func (e *Executor) fill(it *infer.Item) {
	for i, id := range it.Tokens {
		block, slot := it.Blocks[(it.Start+i)/e.cfg.BlockTokens], (it.Start+i)%e.cfg.BlockTokens
		m := &e.memory[block]
		if i == 0 || slot == 0 {
			for _, user := range m.users {
				if user != it.Seq {
					e.violated("sequence %d writes to block %d, which sequence %d has too", it.Seq, block, user)
				}
			}
			m.adapter, m.scale = it.Adapter, it.AdapterScale
		}
		m.tokens = append(m.tokens[:slot], id)
	}
}

// disown gives up the blocks of s.
func (e *Executor) disown(seq infer.SeqID, s *sequence) {
	for _, b := range s.blocks {
		e.memory[b].users = slices.DeleteFunc(e.memory[b].users, func(user infer.SeqID) bool { return user == seq })
	}
	s.blocks = nil
}
