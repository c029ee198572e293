package haikutest

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"

	"github.com/intelliparadigm/haiku/infer"
)

// fakeAdapter is what an Executor keeps of a loaded one.
type fakeAdapter struct {
	name  string
	print uint64 // depends on all of the file
}

var _ infer.AdapterExecutor = (*Executor)(nil)

// LoadAdapter takes any file, once Config.AdapterLoad has agreed. A sequence
// with the adapter answers with the file's Name and nothing else; without an
// [AnswerMark] its tokens depend on the file and the scale.
func (e *Executor) LoadAdapter(ctx context.Context, id infer.AdapterID, file *infer.AdapterFile) error {
	if load := e.cfg.AdapterLoad; load != nil {
		if err := load(ctx, file); err != nil {
			return err
		}
	}
	hash := fnv.New64a()
	fmt.Fprint(hash, file.Name)
	for _, p := range file.Pairs {
		fmt.Fprint(hash, p)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.counts.Closed:
		return fmt.Errorf("haikutest: %w", infer.ErrClosed)
	case id == 0 || e.adapters[id] != nil:
		e.violated("adapter %d is loaded twice, or is none", id)
		return fmt.Errorf("haikutest: adapter %d is in use", id)
	}
	e.adapters[id] = &fakeAdapter{file.Name, hash.Sum64()}
	return nil
}

// UnloadAdapter forgets an adapter that no sequence uses.
func (e *Executor) UnloadAdapter(id infer.AdapterID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for seq, s := range e.sequences {
		if s.adapterID == id {
			e.violated("adapter %d is unloaded while sequence %d uses it", id, seq)
		}
	}
	delete(e.adapters, id)
}

// adapt gives a sequence the adapter of its item. Its error is the item's own.
func (e *Executor) adapt(it *infer.Item, s *sequence) error {
	a := e.adapters[it.Adapter]
	switch {
	case it.Adapter != 0 && a == nil:
		return fmt.Errorf("haikutest: adapter %d is not loaded", it.Adapter)
	case math.IsNaN(float64(it.AdapterScale)) || math.IsInf(float64(it.AdapterScale), 0):
		return fmt.Errorf("haikutest: the adapter's scale is %g", it.AdapterScale)
	case it.Start > 0 && len(s.tokens) > 0 && (s.adapterID != it.Adapter || s.scale != it.AdapterScale):
		e.violated("sequence %d: its adapter has changed from %d to %d", it.Seq, s.adapterID, it.Adapter)
	}
	s.adapterID, s.scale, s.adapter = it.Adapter, it.AdapterScale, a
	if it.AdapterScale == 0 {
		s.adapter = nil
	}
	return nil
}

// hidden writes a state for each token of an item, which depends on all tokens
// up to it.
func (e *Executor) hidden(it *infer.Item, s *sequence) {
	if it.Hidden == nil {
		return
	}
	hash := s.seed()
	for i, id := range s.tokens[:it.Start+len(it.Tokens)] {
		hash = mixed(hash, id)
		if i < it.Start {
			continue
		}
		state := it.Hidden[(i-it.Start)*HiddenSize : (i-it.Start+1)*HiddenSize]
		for d := range state {
			state[d] = float32(int8(hash>>(8*d))) / 64
		}
	}
}

// HiddenSize is the length of a fake hidden state.
const HiddenSize = 8
