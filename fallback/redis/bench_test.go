package redis

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/internal/testserver"
)

// BenchmarkExchange fills a window of some buckets first.
func BenchmarkExchange(b *testing.B) {
	srv := testserver.Redis(b)
	r := raw(b, srv.Addr)
	for _, buckets := range []int{10, 60} {
		b.Run(fmt.Sprintf("buckets=%d", buckets), func(b *testing.B) {
			o := patient
			o.Buckets = buckets
			c := atTestTime(open(b, srv.Addr, o))
			delta := seen(7)
			for i := range counts {
				*fields(&delta)[i] = 100
			}
			for i := range buckets {
				tick(b, r, int64(i)*1000)
				_, err := c.Exchange(b.Context(), b.Name(), delta, time.Duration(buckets)*time.Second)
				require.NoError(b, err)
			}
			b.ReportAllocs()
			for b.Loop() {
				_, err := c.Exchange(b.Context(), b.Name(), delta, time.Duration(buckets)*time.Second)
				require.NoError(b, err)
			}
		})
	}
}

// BenchmarkPing is a round trip with nothing to do, to compare with.
func BenchmarkPing(b *testing.B) {
	client := raw(b, testserver.Redis(b).Addr)
	for b.Loop() {
		_ = client.Ping(b.Context()).Err()
	}
}

// BenchmarkOff is what a server that was given up costs.
func BenchmarkOff(b *testing.B) {
	c := open(b, "127.0.0.1:1", Options{Pause: time.Hour})
	for !c.Stats().Open {
		_, _ = c.Exchange(b.Context(), "m", seen(1), time.Minute)
	}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = c.Exchange(b.Context(), "m", seen(1), time.Minute)
	}
}
