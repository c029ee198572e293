package openai

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// streaming returns the encoder of a stream whose first token is out.
func streaming(t testing.TB) (haiku.Encoder, []byte, *haiku.Delta) {
	t.Helper()
	r := ChatCompletionRequest{Params: Params{Stream: true}, Messages: []Message{UserMessage("x")}}
	req, err := r.InferenceRequest()
	require.NoError(t, err)
	d := &haiku.Delta{Escaped: []byte(" autumn")}
	e := req.Encoder
	buf := e.Token(e.Begin(make([]byte, 0, 4096), haiku.Head{ID: req.ID, Model: "frog"}), d)
	return e, buf, d
}

func TestATokenIsEncodedWithoutAllocating(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	e, buf, d := streaming(t)
	require.Zero(t, testing.AllocsPerRun(1000, func() { buf = e.Token(buf[:0], d) }))
}

func BenchmarkToken(b *testing.B) {
	e, buf, d := streaming(b)
	b.ReportAllocs()
	for b.Loop() {
		buf = e.Token(buf[:0], d)
	}
}
