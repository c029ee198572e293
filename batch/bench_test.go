package batch

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// echo answers at once, out of a slice per worker: one worker only.
func echo() Func[int, int] {
	var results []Result[int]
	return func(_ context.Context, reqs []int) ([]Result[int], error) {
		results = results[:0]
		for _, req := range reqs {
			results = append(results, Result[int]{Value: req})
		}
		return results, nil
	}
}

func TestDoAllocatesLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	b := open(t, echo(), Options{})
	// A context per batch is all that is made anew; the worst case is a batch of one.
	require.LessOrEqual(t, testing.AllocsPerRun(2000, func() { _, _ = b.Do(t.Context(), 1) }), 2.0)
}

// BenchmarkDo is one caller: each batch holds one request.
func BenchmarkDo(b *testing.B) {
	batcher, err := New(echo(), Options{})
	require.NoError(b, err)
	defer batcher.Close()
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		_, _ = batcher.Do(ctx, 1)
	}
}

// BenchmarkDoParallel is 64 callers per processor.
func BenchmarkDoParallel(b *testing.B) {
	batcher, err := New(echo(), Options{})
	require.NoError(b, err)
	defer batcher.Close()
	b.ReportAllocs()
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		ctx := context.Background()
		for pb.Next() {
			_, _ = batcher.Do(ctx, 1)
		}
	})
	b.ReportMetric(batcher.Stats().MeanSize(), "requests/batch")
}
