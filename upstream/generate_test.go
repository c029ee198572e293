package upstream

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/haikutest"
)

func TestAnAnswerIsStreamed(t *testing.T) {
	e, _ := serve(t, events(plain...), Options{})
	for range 3 {
		a := ask(t.Context(), e, hello())
		require.NoError(t, a.err)
		require.Equal(t, "Hello", a.texts[0])
		require.Equal(t, haiku.FinishStop, a.finish[0])
		require.Equal(t, haiku.Usage{PromptTokens: 5, CompletionTokens: 2}, a.usage)
		require.Equal(t, "big", a.model)
	}
}

func TestTheEngineKeepsTheContractOfAModel(t *testing.T) {
	two := []string{
		`data: {"model":"big","choices":[{"index":0,"delta":{"role":"assistant","content":""}},{"index":1,"delta":{"role":"assistant","content":""}}]}` + "\n\n",
		piece("one "), `data: {"choices":[{"index":1,"delta":{"content":"uno "}}]}` + "\n\n",
		piece("two"), `data: {"choices":[{"index":1,"delta":{"content":"due"},"finish_reason":"length"}]}` + "\n\n",
		stopChunk, usageChunk, doneMark,
	}
	req := hello()
	req.Choices = 2
	req.Sampling.Temperature = 1
	refused := hello()
	refused.Sampling.TopK = 40
	haikutest.TestModel(t, func(t *testing.T) haiku.Model {
		e, _ := serve(t, events(two...), Options{})
		return e
	}, req, refused)
}
