package upstream

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/internal/sseread"
)

// FuzzAnswer plays an engine that sends anything at all. Whatever it is, the
// Model ends with a good answer or an error that has a place on the wire, and
// what passes through is whole events that end in one of the two.
func FuzzAnswer(f *testing.F) {
	for _, seed := range [][]string{
		plain, {piece("a"), "data: {\"error\":{\"code\":500}}\n\n"}, {piece("a"), stopChunk}, {roleChunk, doneMark},
		{choiceChunk(`{"delta":{"tool_calls":[{"index":0}]},"finish_reason":"tool_calls"}`)}, {"error: x\n\n"}, {"{\"detail\":[{\"msg\":\"x\"}]}"},
	} {
		f.Add(strings.Join(seed, ""), true)
	}
	f.Fuzz(func(t *testing.T, text string, bytewise bool) {
		transport := roundTripper(func(r *http.Request) (*http.Response, error) {
			var body io.Reader = strings.NewReader(text)
			if bytewise {
				body = iotest.OneByteReader(body)
			}
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(body)}, nil
		})
		e, err := New("http://h", Options{Transport: transport, Retry: Retry{Attempts: 1}})
		require.NoError(t, err)
		defer e.Close()
		a := ask(t.Context(), e, hello())
		if a.err != nil {
			var wire *haiku.Error
			var panicked *haiku.PanicError
			require.ErrorAs(t, a.err, &wire)
			require.False(t, errors.As(a.err, &panicked))
		} else {
			require.NotEmpty(t, a.finish[0])
		}
		w := post(t, passingTo(e), "/v1/chat/completions", countedBody)
		if w.Code == 200 {
			require.NoError(t, wellFormed(w.Body.String()), "%q from %q", w.Body.String(), text)
		}
	})
}

// wellFormed reports what is wrong with a stream for a client.
func wellFormed(text string) error {
	r := sseread.NewReader(strings.NewReader(text), 0)
	defer r.Release()
	last := ""
	for {
		var ev sseread.Event
		err := r.Fill()
		for r.Scan(&ev) {
			last = string(ev.Data)
		}
		if err != nil {
			if r.Last(&ev) {
				return errors.New("half an event at the end")
			}
			break
		}
	}
	if strings.TrimSpace(last) != "[DONE]" && !strings.HasPrefix(last, `{"error":`) && !strings.HasSuffix(strings.TrimSpace(last), "[DONE]") {
		return errors.New("no end")
	}
	return nil
}
