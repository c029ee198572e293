package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/internal/gguf"
)

func TestExecutorKeepsTheContract(t *testing.T) {
	file := open(t, tinyModel)
	for _, level := range levels() {
		haikutest.TestExecutor(t, func(t *testing.T) infer.Executor {
			e, err := at(level, Options{Threads: 2}).Load(t.Context(), file)
			require.NoError(t, err)
			return e
		})
	}
}

func TestExecutorKeepsTheAdaptersContract(t *testing.T) {
	for _, file := range []*gguf.File{open(t, tinyModel), synthetic(t, mixtureConfig, nil)} {
		one := load(t, New(), file)
		for _, level := range levels() {
			haikutest.TestAdapters(t, func(t *testing.T) infer.Executor {
				e, err := at(level, Options{Threads: 2}).Load(t.Context(), file)
				require.NoError(t, err)
				return e
			}, randomAdapter(one, 4, 1), randomAdapter(one, 7, 2))
		}
	}
}
