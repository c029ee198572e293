package haikutest

import (
	"testing"

	"github.com/intelliparadigm/haiku/infer"
)

// NewModel returns an engine over a fake executor that costs nothing and
// answers every conversation with pieces, one token each. It is closed when
// the test ends, like that of [NewEngine]. A plain prompt gets the answer if it
// ends with [AnswerMark], and noise otherwise.
func NewModel(t testing.TB, pieces ...string) *infer.Engine {
	t.Helper()
	return NewEngine(t, New(Says(pieces...)), infer.Options{})
}

// NewEngine returns an engine over a fake executor. When the test ends it is
// closed, and the test fails if sequences were left open or the engine broke
// the executor's contract.
func NewEngine(t testing.TB, exec *Executor, opts infer.Options) *infer.Engine {
	t.Helper()
	engine, err := infer.New(exec, exec.Text(), opts)
	if err != nil {
		t.Fatalf("haikutest: %v", err)
	}
	t.Cleanup(func() {
		t.Helper()
		open := exec.Counts().OpenSequences
		if err := engine.Close(); err != nil {
			t.Errorf("haikutest: close the engine: %v", err)
		}
		if open != 0 {
			t.Errorf("haikutest: %d sequences were open when the test ended", open)
		}
		for _, v := range exec.Violations() {
			t.Errorf("haikutest: %s", v)
		}
	})
	return engine
}
