package haikutest

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/infer"
)

// use is a use of an executor, as an engine makes it.
type use struct {
	*testing.T
	exec *Executor
}

// step computes one token per item, each given as sequence, start and blocks.
func (u use) step(items ...infer.Item) {
	for i := range items {
		if items[i].Tokens == nil {
			items[i].Tokens = []int32{50}
		}
	}
	_ = u.exec.Step(u.Context(), &infer.Batch{Items: items})
}

func at(seq infer.SeqID, start int, blocks ...int32) infer.Item {
	return infer.Item{Seq: seq, Start: start, Blocks: blocks}
}

func TestAnEngineThatBreaksTheContractIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		use  func(use)
		want []string
	}{
		"nothing": {func(u use) {
			u.step(at(1, 0, 0, 1), at(2, 0, 2, 3))
			u.step(at(1, 1, 0, 1), at(2, 1, 2, 3))
			u.step(at(1, 1, 0, 1))
			u.exec.Release(1)
			u.step(at(2, 2, 2, 3), at(3, 0, 1, 0))
			u.exec.Release(2)
			u.exec.Release(2)
			u.exec.Release(3)
			require.NoError(u, u.exec.Close())
			require.NoError(u, u.exec.Close())
		}, nil},
		"more blocks, later": {func(u use) {
			u.step(infer.Item{Seq: 1, Tokens: make([]int32, 16), Blocks: []int32{7}})
			u.step(at(1, 16, 7, 9))
		}, nil},
		"a block with two readers": {func(u use) {
			u.step(infer.Item{Seq: 1, Tokens: make([]int32, 16), Blocks: []int32{7}})
			u.step(at(1, 16, 7, 1), at(2, 16, 7, 2))
			u.exec.Release(1)
			u.step(at(3, 16, 7, 3))
		}, nil},
		"a copy for one that parts": {func(u use) {
			u.step(at(1, 0, 0))
			parted := at(2, 1, 5)
			parted.Copy, parted.CopyFrom = true, 0
			u.step(parted, at(1, 1, 0))
		}, nil},
		"a block that another reads": {func(u use) {
			u.step(at(1, 0, 0))
			u.step(at(2, 1, 0))
		}, []string{"sequence 2 writes to block 0, which sequence 1 has too"}},
		"a block of another adapter": {func(u use) {
			require.NoError(u, u.exec.LoadAdapter(u.Context(), 3, &infer.AdapterFile{Name: "a"}))
			u.step(infer.Item{Seq: 1, Tokens: make([]int32, 16), Blocks: []int32{7}})
			other := at(2, 16, 7, 2)
			other.Adapter, other.AdapterScale = 3, 1
			u.step(other)
			u.exec.Release(2)
		}, []string{"sequence 2: block 7 was computed with adapter 0, its own is 3"}},
		"a block twice in one table": {func(u use) {
			u.step(at(1, 0, 4, 4))
		}, []string{"sequence 1: block 4 is twice in its table"}},
		"a block that moves": {func(u use) {
			u.step(at(2, 0, 2))
			u.exec.Release(2)
			u.step(at(1, 0, 0, 1))
			u.step(at(1, 1, 2, 1))
		}, []string{"sequence 1: the blocks below position 1 have changed"}},
		"a gap": {func(u use) {
			u.step(at(1, 0, 0))
			u.step(at(1, 7, 0))
		}, []string{"sequence 1: tokens from position 7 where 1 are computed"}},
		"a beginning in the middle": {func(u use) {
			u.step(at(1, 2, 0))
		}, []string{"sequence 1: tokens from position 2 where 0 are computed"}},
		"a sequence after its release": {func(u use) {
			u.step(at(1, 0, 0))
			u.exec.Release(1)
			u.step(at(1, 1, 0))
			u.step(at(1, 0, 0))
		}, []string{
			"sequence 1: it has been released",
		}},
		"two items of one sequence": {func(u use) {
			u.step(at(1, 0, 0), at(1, 0, 0))
		}, []string{"sequence 1: two items in one step"}},
		"too many tokens": {func(u use) {
			u.step(infer.Item{Seq: 1, Tokens: make([]int32, 21), Blocks: []int32{0, 1}})
		}, []string{"a step of 21 tokens, at most 20 are allowed"}},
		"too few blocks": {func(u use) {
			u.step(infer.Item{Seq: 1, Tokens: make([]int32, 17), Blocks: []int32{0}})
		}, []string{"sequence 1: 1 blocks do not hold 17 positions"}},
		"a step after Close": {func(u use) {
			require.NoError(u, u.exec.Close())
			u.step(at(1, 0, 0))
		}, []string{"Step after Close"}},
	} {
		t.Run(name, func(t *testing.T) {
			u := use{t, New(Config{MaxBatchTokens: 20})}
			c.use(u)
			require.Equal(t, c.want, u.exec.Violations())
		})
	}
}

func TestCallsDuringAStepAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := use{t, New(Config{Costs: Costs{Step: time.Second}})}
		u.step(at(1, 0, 0), at(2, 0, 1))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			u.step(at(1, 1, 0))
		}()
		synctest.Wait()
		second := infer.Batch{Items: []infer.Item{{Seq: 3, Tokens: []int32{50}, Blocks: []int32{2}}}}
		require.ErrorIs(t, u.exec.Step(context.Background(), &second), errBusy)
		u.exec.Release(2)
		require.NoError(t, u.exec.Close())
		<-ended
		require.Equal(t, []string{
			"two steps at a time", "Release of sequence 2 during a step", "Close during a step",
		}, u.exec.Violations())
	})
}

func TestReportsAreBounded(t *testing.T) {
	u := use{t, New(Config{})}
	for seq := range infer.SeqID(300) {
		u.step(at(seq, 5, 0))
	}
	require.Len(t, u.exec.Violations(), maxViolations)
	require.Equal(t, "sequence 99: tokens from position 5 where 0 are computed", u.exec.Violations()[99])
}

// judge is a test whose failures are collected.
type judge struct {
	testing.TB
	said     []string
	cleanups []func()
}

func (j *judge) Helper()          {}
func (j *judge) Cleanup(f func()) { j.cleanups = append(j.cleanups, f) }
func (j *judge) Errorf(format string, args ...any) {
	j.said = append(j.said, fmt.Sprintf(format, args...))
}
func (j *judge) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (j *judge) end() {
	for _, f := range j.cleanups {
		f()
	}
}

func TestNewEngineFailsATestThatLeavesSomethingBehind(t *testing.T) {
	exec := New(Config{})
	j := &judge{TB: t}
	NewEngine(j, exec, infer.Options{})
	u := use{t, exec}
	u.step(at(1, 0, 0))
	u.step(at(2, 0, 0))
	j.end()
	require.Equal(t, []string{
		"haikutest: 2 sequences were open when the test ended",
		"haikutest: sequence 2 writes to block 0, which sequence 1 has too",
	}, j.said)
	require.True(t, exec.Counts().Closed)
	require.Equal(t, 2, exec.Counts().OpenSequences, "Close does not hide them")
}

func TestNewEngineFailsATestThatItCannotServe(t *testing.T) {
	exec := New(Config{BlockTokens: -1})
	require.PanicsWithValue(t, "haikutest: infer: unsupported model: the executor's spec has a size of zero: "+
		fmt.Sprintf("%+v", exec.Spec()), func() { NewEngine(&judge{TB: t}, exec, infer.Options{}) })
}
