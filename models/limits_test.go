package models_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/fallback"
	"github.com/intelliparadigm/haiku/models"
	"github.com/intelliparadigm/haiku/upstream/pool"
)

// takes answers with its name, some time after it was asked.
func takes(d time.Duration, name string) haiku.Model {
	return haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return ctx.Err()
		}
		_, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: name, Finish: haiku.FinishStop})
		return err
	})
}

// TestAModelWithinItsOwnFirstTokenIsNotLeftAlone: what the description allows, its
// breaker does not hold against it.
func TestAModelWithinItsOwnFirstTokenIsNotLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, `{"models": [
			{"name": "chat", "local": "chat", "fallback": ["spare"], "first_token": "2s"},
			{"name": "spare", "local": "spare", "hidden": true}
		]}`, models.Parts{Models: map[string]haiku.Model{"chat": takes(time.Second, "chat"), "spare": takes(0, "spare")}})
		for range 100 {
			text, _ := ask(t, s, "chat")
			require.Equal(t, "chat", text)
		}
		chain, _ := s.Chain("chat")
		require.Equal(t, fallback.Closed, chain.Breaker(0).Status().State)
	})
}

// TestStallIsThatOfAPoolToo has a server that says something and no more.
func TestStallIsThatOfAPoolToo(t *testing.T) {
	stuck := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"old \"}}]}\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer stuck.Close()
	s := open(t, `{"models": [{"name": "chat", "stall": "20ms", "servers": [
		{"name": "a", "url": "`+stuck.URL+`", "health": "none"}, {"name": "b", "url": "`+stuck.URL+`", "health": "none"}
	]}]}`, models.Parts{Pool: pool.Options{Stall: time.Hour}})
	ctx := haiku.WithLogger(t.Context(), slog.New(slog.DiscardHandler))
	text, err := haiku.NewStream(ctx, s, &haiku.Request{Prompt: "x"}).Text()
	require.Equal(t, "old ", text)
	require.ErrorIs(t, err, fallback.ErrStalled)
}
