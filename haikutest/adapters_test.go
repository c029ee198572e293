package haikutest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/infer"
)

func named(names ...string) (files []*infer.AdapterFile) {
	for _, name := range names {
		files = append(files, &infer.AdapterFile{Name: name})
	}
	return files
}

func TestTheFakeKeepsTheAdaptersContract(t *testing.T) {
	TestAdapters(t, func(*testing.T) infer.Executor { return New(Says("one")) }, named("a", "b")...)
}

// adapterBroken is a fake with one rule about adapters broken.
type adapterBroken struct {
	*Executor
	item   func(*infer.Item)
	unload func(infer.AdapterID)
}

func (b *adapterBroken) Step(ctx context.Context, batch *infer.Batch) error {
	if b.item != nil {
		for i := range batch.Items {
			b.item(&batch.Items[i])
		}
	}
	return b.Executor.Step(ctx, batch)
}

func (b *adapterBroken) UnloadAdapter(id infer.AdapterID) {
	if b.unload != nil {
		b.unload(id)
		return
	}
	b.Executor.UnloadAdapter(id)
}

// Every way to break a rule is found by that rule.
func TestBrokenAdapterExecutorsAreCaught(t *testing.T) {
	for says, spoil := range map[string]func(*adapterBroken){
		"each sequence has its own adapter, whatever the others have: adapters 0 and 1": func(b *adapterBroken) {
			b.item = func(it *infer.Item) { it.Adapter = 0 }
		},
		"each sequence has its own adapter, whatever the others have: item 1 with adapter 0": func(b *adapterBroken) {
			last := infer.AdapterID(0) // one for all, as a global setting would be
			b.item = func(it *infer.Item) {
				if it.Adapter == 0 {
					it.Adapter = last
				}
				last = it.Adapter
			}
		},
		"a scale of 0 is the base model": func(b *adapterBroken) {
			b.item = func(it *infer.Item) { it.AdapterScale = 1 }
		},
		"an adapter that is not loaded fails its item alone": func(b *adapterBroken) {
			b.item = func(it *infer.Item) { it.Adapter %= 3 }
		},
		"an unloaded adapter's id can be used again: a step with an unloaded": func(b *adapterBroken) {
			b.unload = func(infer.AdapterID) {}
		},
	} {
		t.Run(says, func(t *testing.T) {
			err := CheckAdapters(func() (infer.Executor, error) {
				b := &adapterBroken{Executor: New(Says("one"))}
				spoil(b)
				return b, nil
			}, named("a", "b")...)
			require.ErrorContains(t, err, says)
		})
	}
	err := CheckAdapters(func() (infer.Executor, error) { return New(Config{}), nil }, named("a")...)
	require.ErrorContains(t, err, "fewer than two adapters")
}

func TestAdapterMisuseIsAViolation(t *testing.T) {
	e := New(Says("one"))
	require.NoError(t, e.LoadAdapter(t.Context(), 1, named("a")[0]))
	require.Error(t, e.LoadAdapter(t.Context(), 1, named("a")[0]))
	step := func(start int, id infer.AdapterID) {
		b := infer.Batch{Items: []infer.Item{{Seq: 1, Start: start, Tokens: []int32{9}, Blocks: []int32{0}, Adapter: id, AdapterScale: 1}}}
		require.NoError(t, e.Step(t.Context(), &b))
		require.NoError(t, b.Items[0].Err)
	}
	step(0, 1)
	e.UnloadAdapter(1)
	step(1, 0)
	require.Equal(t, []string{
		"adapter 1 is loaded twice, or is none",
		"adapter 1 is unloaded while sequence 1 uses it",
		"sequence 1: its adapter has changed from 1 to 0",
		"sequence 1: block 0 was computed with adapter 1, its own is 0",
	}, e.Violations())
	require.Zero(t, e.Counts().Adapters)
	require.NoError(t, e.Close())
	require.ErrorIs(t, e.LoadAdapter(t.Context(), 2, named("a")[0]), infer.ErrClosed)
}
