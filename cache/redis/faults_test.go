package redis

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// brisk gives up soon and tries again soon.
func brisk(log *bytes.Buffer) Options {
	return Options{Deadline: 250 * time.Millisecond, Failures: 3, Pause: time.Millisecond, MaxPause: 8 * time.Millisecond, Logger: textLogger(log)}
}

// eventually waits for the store to store, and so to have recovered.
func eventually(t *testing.T, s *Store, entries ...Entry) {
	t.Helper()
	require.Eventually(t, func() bool { return s.SetAll(t.Context(), 1, entries) }, 20*time.Second, 2*time.Millisecond)
}

// untilOpen reads until the store gives the server up.
func untilOpen(t *testing.T, s *Store) {
	t.Helper()
	for i := 0; s.Stats().Opened == 0; i++ {
		require.Less(t, i, 100, "it gives up")
		require.Equal(t, "-", get(t, s, "k"))
	}
}

func TestADeadServerIsAMissAndComesBack(t *testing.T) {
	srv := serve(t)
	log := &bytes.Buffer{}
	s := srv.open(brisk(log))
	eventually(t, s, entry("k", "old", "tag"))
	srv.Kill()
	untilOpen(t, s)
	require.False(t, s.SetAll(t.Context(), 1, []Entry{entry("k", "v")}))
	srv.Restart()
	eventually(t, s, entry("other", "new", "tag"))
	require.Equal(t, "- new", get(t, s, "k", "other"), "what was lost stays lost")
	require.False(t, s.Stats().Open)
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log)
	require.Equal(t, 1, strings.Count(log.String(), "level=INFO"), log)
}

func TestAServerThatIsNotThereYet(t *testing.T) {
	srv := serve(t)
	srv.Kill()
	s := srv.open(brisk(&bytes.Buffer{}))
	untilOpen(t, s)
	require.NotZero(t, s.Stats().Errors)
	srv.Restart()
	eventually(t, s, entry("k", "v"))
}

func TestAStoppedServerCostsTheDeadlineAndThenNothing(t *testing.T) {
	t.Parallel()
	srv := serve(t)
	log := &bytes.Buffer{}
	o := brisk(log)
	o.Pause, o.MaxPause = time.Hour, time.Hour
	options := ClientOptions(srv.Addr)
	options.ReadTimeout, options.WriteTimeout = -1, -1 // by itself it would wait for ever
	client := goredis.NewUniversalClient(options)
	defer client.Close()
	s := New(client, o)
	eventually(t, s, entry("k", "v", "tag"))
	srv.Pause()
	before := s.Stats().Timeouts
	untilOpen(t, s)
	require.Equal(t, before+3, s.Stats().Timeouts)
	for range 10_000 {
		require.False(t, s.SetAll(t.Context(), 2, []Entry{entry("k", "w")}))
	}
	require.Equal(t, uint64(10_000), s.Stats().Skipped)
	require.Equal(t, before+3, s.Stats().Timeouts)
	srv.Resume()
	require.Equal(t, "-", get(t, s, "k"), "the pause is not over")
}

func TestAServerThatWakesUpIsUsedAgain(t *testing.T) {
	t.Parallel()
	srv := serve(t)
	log := &bytes.Buffer{}
	s := srv.open(brisk(log))
	eventually(t, s, entry("k", "v"))
	srv.Pause()
	untilOpen(t, s)
	for range 3 { // probes that fail are not news
		require.Eventually(t, func() bool { before := s.Stats().Timeouts; _ = get(t, s, "k"); return s.Stats().Timeouts > before },
			20*time.Second, time.Millisecond)
	}
	srv.Resume()
	require.Eventually(t, func() bool { return get(t, s, "k") == "v" }, 20*time.Second, time.Millisecond)
	require.Equal(t, 2, strings.Count(log.String(), "\n"), log)
}

func TestACallersOwnDeadlineIsNotHeldAgainstTheServer(t *testing.T) {
	t.Parallel()
	srv := serve(t)
	s := srv.open(patient)
	require.True(t, s.SetAll(t.Context(), 1, []Entry{entry("k", "v")}))
	srv.Pause()
	for range 2 * defaultFailures {
		hasty, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		require.Equal(t, "-", texts(s.Get(hasty, "k")))
		cancel()
	}
	srv.Resume()
	require.Equal(t, "v", get(t, s, "k"))
	require.Equal(t, Stats{Hits: 1, Misses: 2 * defaultFailures, Stored: 1}, s.Stats())
}

func TestALateWriteDoesNotPassAnInvalidation(t *testing.T) {
	t.Parallel()
	srv := serve(t)
	o := patient
	o.Deadline = 100 * time.Millisecond
	o.Failures = 1000
	slow, other := srv.open(o), srv.open(patient)
	require.True(t, slow.SetAll(t.Context(), 1, []Entry{entry("k", "v1", "model")}))
	srv.Pause()
	require.False(t, slow.SetAll(t.Context(), 2, []Entry{entry("k", "late", "model"), entry("untagged", "late")}))
	require.Equal(t, uint64(1), slow.Stats().Timeouts)
	// The bytes of the late write are in the server's socket. Whether it takes the
	// invalidation first or second, the entry is gone.
	done := make(chan bool)
	go func() { done <- other.Invalidate(t.Context(), "model") }()
	srv.Resume()
	require.True(t, <-done)
	require.Equal(t, "-", get(t, other, "k"))
	raw := srv.raw()
	require.NoError(t, raw.Ping(t.Context()).Err())
	require.Equal(t, "-", get(t, other, "k"))
}

// TestAWriteUnderOldVersionsIsNotStored runs what a write sends after the
// invalidation that it did not know of, whichever way it was held up.
func TestAWriteUnderOldVersionsIsNotStored(t *testing.T) {
	srv := serve(t)
	s, other := srv.open(patient), srv.open(patient)
	entries := []Entry{entry("free", "v"), entry("k", "v", "other tag", "model")}
	require.True(t, s.SetAll(t.Context(), 1, entries))
	w := s.newWrite(2, entries)
	held := w.arguments(s.versions.of(w.tags), entries)
	require.True(t, other.Invalidate(t.Context(), "model"))
	require.NoError(t, srv.raw().Del(t.Context(), s.prefix+"free").Err())
	require.NotEmpty(t, s.write.Run(t.Context(), s.client, w.keys, held...).Val())
	require.Equal(t, "- -", get(t, other, "free", "k"))
	require.True(t, s.SetAll(t.Context(), 3, entries), "a new write learns the version")
	require.Equal(t, "v v", get(t, other, "free", "k"))
}

func TestAFlushedServerBringsNothingBack(t *testing.T) {
	srv := serve(t)
	s, raw := srv.open(patient), srv.raw()
	require.True(t, s.SetAll(t.Context(), 1, []Entry{entry("k", "old", "tag"), entry("free", "old")}))
	kept := raw.Dump(t.Context(), s.prefix+"k").Val()
	require.NoError(t, raw.FlushAll(t.Context()).Err())
	require.NoError(t, raw.ScriptFlush(t.Context()).Err())
	require.Equal(t, "- -", get(t, s, "k", "free"))
	require.True(t, s.SetAll(t.Context(), 2, []Entry{entry("new", "1", "tag")}))
	require.NoError(t, raw.Restore(t.Context(), s.prefix+"k", time.Minute, kept).Err())
	require.Equal(t, "-", get(t, s, "k"), "the version of its tag was drawn anew")
	require.Equal(t, "1", get(t, s, "new"))

	require.NoError(t, raw.Del(t.Context(), s.tagsKey).Err(), "as an eviction of the versions")
	require.Equal(t, "-", get(t, s, "new"))
	require.True(t, s.SetAll(t.Context(), 3, []Entry{entry("newer", "2", "tag")}))
	require.Equal(t, "-", get(t, s, "new"))
	require.Equal(t, "2", get(t, s, "newer"))
}

func TestAnInvalidationIsOwedUntilItArrives(t *testing.T) {
	t.Parallel()
	srv := serve(t)
	s, other := srv.open(brisk(&bytes.Buffer{})), srv.open(patient)
	eventually(t, s, entry("k", "old", "tag"), entry("free", "old"))
	srv.Pause()
	require.False(t, s.Invalidate(t.Context(), "tag"))
	late := srv.open(brisk(&bytes.Buffer{}))
	require.False(t, late.Invalidate(t.Context(), "another tag"))
	require.ErrorIs(t, late.Close(), ErrOwed)
	srv.Resume()
	require.Eventually(t, func() bool { return get(t, s, "free") == "old" }, 20*time.Second, time.Millisecond)
	require.Equal(t, "-", get(t, other, "k"), "the first operation that got through has delivered it")
	require.NoError(t, s.Close())
}
