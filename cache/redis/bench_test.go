package redis

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// parts are the three parts of an answer, bytes long together.
func parts(bytes int) []Entry {
	return []Entry{
		{Key: "output", Value: make([]byte, bytes/2), Tags: []string{"model", "tenant"}},
		{Key: "vector", Value: make([]byte, bytes/2-64), Tags: []string{"model", "tenant"}},
		{Key: "route", Value: make([]byte, 64), Tags: []string{"routes"}},
	}
}

func BenchmarkGet(b *testing.B) {
	s := serve(b).open(patient)
	for _, bytes := range []int{1 << 10, 1 << 14, 1 << 18} {
		require.True(b, s.SetAll(b.Context(), 1, parts(bytes)))
		for _, keys := range [][]string{{"output"}, {"output", "vector", "route"}} {
			b.Run(fmt.Sprintf("keys=%d/KiB=%d", len(keys), bytes>>10), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if s.Get(b.Context(), keys...)[0] == nil {
						b.Fatal("a miss")
					}
				}
			})
		}
	}
	b.Run("miss", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = s.Get(b.Context(), "nothing")
		}
	})
	require.True(b, s.SetAll(b.Context(), 1, parts(1<<10)))
	b.Run("parallel/keys=1/KiB=1", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_ = s.Get(b.Context(), "output")
			}
		})
	})
}

// BenchmarkPing is a round trip with nothing to do, to compare with.
func BenchmarkPing(b *testing.B) {
	client := serve(b).raw()
	b.ReportAllocs()
	for b.Loop() {
		_ = client.Ping(b.Context()).Err()
	}
}

func BenchmarkSetAll(b *testing.B) {
	s := serve(b).open(patient)
	for _, bytes := range []int{1 << 10, 1 << 14, 1 << 18} {
		entries := parts(bytes)
		b.Run(fmt.Sprintf("KiB=%d", bytes>>10), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !s.SetAll(b.Context(), 1, entries) {
					b.Fatal("not stored")
				}
			}
		})
	}
}

func BenchmarkInvalidate(b *testing.B) {
	s := serve(b).open(patient)
	b.ReportAllocs()
	for b.Loop() {
		_ = s.Invalidate(b.Context(), "model")
	}
}

// off returns a Store that has given its server up, for an hour.
func off(t testing.TB) *Store {
	srv := serve(t)
	o := patient
	o.Pause = time.Hour
	s := srv.open(o)
	srv.Kill()
	for !s.Stats().Open {
		_ = s.Get(t.Context(), "k")
	}
	return s
}

func TestAServerGivenUpCostsNoMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s, entries := off(t), parts(1<<10)
	require.Zero(t, testing.AllocsPerRun(1000, func() { _ = s.SetAll(t.Context(), 1, entries) }))
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { _ = s.Get(t.Context(), "output", "vector") }), 1.0, "the result")
}

// BenchmarkOff is what a server that was given up costs.
func BenchmarkOff(b *testing.B) {
	s := off(b)
	entries := parts(1 << 10)
	b.Run("Get", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = s.Get(b.Context(), "output", "vector", "route")
		}
	})
	b.Run("SetAll", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = s.SetAll(b.Context(), 1, entries)
		}
	})
}
