package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
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
