package haiku_test

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// badEncoder panics in the method named.
type badEncoder struct {
	wordEncoder
	in string
}

func (e *badEncoder) Begin(dst []byte, h haiku.Head) []byte {
	if e.in == "Begin" {
		panic("encoder")
	}
	return e.wordEncoder.Begin(dst, h)
}

func (e *badEncoder) Token(dst []byte, d *haiku.Delta) []byte {
	if e.in == "Token" || e.in == "second Token" && string(d.Escaped) == "b" {
		panic("encoder")
	}
	return e.wordEncoder.Token(dst, d)
}

func (e *badEncoder) End(dst []byte, u haiku.Usage, err *haiku.Error) []byte {
	if e.in == "End" && err == nil {
		panic("encoder")
	}
	return e.wordEncoder.End(dst, u, err)
}

const internalBody = `{"error":{"message":"the server failed to answer","type":"server_error","param":null,"code":"internal_error"}}`

func TestAPanicOfTheEncoderIsAnErrorOfItsStream(t *testing.T) {
	for _, tt := range []struct {
		in     string
		events bool
		status int
		want   string
	}{
		{"Begin", true, 500, internalBody},
		{"Token", true, 500, internalBody},
		{"second Token", true, 200, "data: begin id \n\ndata: 0 \"a\"\n\ndata: " + internalBody + "\n\n"},
		{"End", true, 200, "data: begin id \n\ndata: 0 \"a\"\n\ndata: 0 \"b\" stop\n\ndata: " + internalBody + "\n\n"},
		{"Begin", false, 500, internalBody},
		{"Token", false, 500, internalBody},
		{"End", false, 500, internalBody},
	} {
		var err error
		flushed := make(chan struct{})
		m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
			w.TryPush(haiku.Piece{ID: -1, Text: "a"})
			if tt.status == 200 {
				<-flushed
			}
			w.TryPush(haiku.Piece{ID: -1, Text: "b", Finish: haiku.FinishStop})
			return nil
		})
		rec := &flushRecorder{ResponseRecorder: httptest.NewRecorder(), onFlush: func(n int) {
			if n == 1 {
				close(flushed)
			}
		}}
		mux := quietMux()
		mux.Register("/", haiku.HandlerFunc(func(c *haiku.Context) {
			enc := &badEncoder{wordEncoder{events: tt.events}, tt.in}
			err = c.Stream(haiku.NewStream(c.Context(), m, &haiku.Request{ID: "id", Encoder: enc}))
		}))
		mux.ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
		var p *haiku.PanicError
		require.ErrorAs(t, err, &p, tt.in)
		require.Equal(t, tt.status, rec.Code, tt.in)
		require.Equal(t, tt.want, rec.Body.String(), tt.in)
	}
}

// An encoder may fail while its model still runs and records usage.
func TestAPanicOfTheEncoderWaitsForTheModel(t *testing.T) {
	m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		var err error
		for n := 0; err == nil; n++ {
			w.SetUsage(haiku.Usage{CompletionTokens: n})
			_, err = w.Push(ctx, haiku.Piece{ID: -1, Text: "x"})
		}
		return err
	})
	for range 20 {
		rec := answered(haiku.HandlerFunc(func(c *haiku.Context) {
			enc := &badEncoder{wordEncoder{}, "Token"}
			_ = c.Stream(haiku.NewStream(c.Context(), m, &haiku.Request{Encoder: enc}))
		}), "/")
		require.Equal(t, internalBody, rec.Body.String())
	}
}
