package ring

import (
	"sync"
	"testing"
)

// BenchmarkPushRead is the cost of one record on one goroutine.
func BenchmarkPushRead(b *testing.B) {
	for name, text := range map[string][]byte{"Token": nil, "Text": []byte(" token")} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			r := newRing(b, Config{ArenaBytes: 4096})
			for b.Loop() {
				r.TryPush(Slot{Token: 1}, text, nil)
				r.Peek()
				r.Advance()
			}
		})
	}
}

// BenchmarkThroughput runs both sides at full speed, sleeping when they must.
func BenchmarkThroughput(b *testing.B) {
	b.ReportAllocs()
	r := newRing(b, Config{Slots: 256})
	var producer sync.WaitGroup
	producer.Go(func() { pushTokens(r, b.N) })
	for range drain(r) {
	}
	producer.Wait()
	s := r.Stats()
	b.ReportMetric(float64(s.Wakeups)/float64(b.N), "wakeups/op")
}

// pushTokens pushes n tokens and closes the ring.
func pushTokens(r *Ring, n int) {
	for range n {
		for !r.TryPush(Slot{Token: 1}, nil, nil) {
			if r.ArmSpace() {
				<-r.Space()
			}
		}
	}
	r.Close(nil)
}

// BenchmarkPingPong is the time from a push to the sleeping reader's answer:
// two wake-ups, one each way.
func BenchmarkPingPong(b *testing.B) {
	b.ReportAllocs()
	there, back := newRing(b, Config{}), newRing(b, Config{})
	var echo sync.WaitGroup
	echo.Go(func() {
		for s := range drain(there) {
			back.TryPush(s, nil, nil)
		}
		back.Close(nil)
	})
	sent := 1
	there.TryPush(Slot{}, nil, nil)
	for range drain(back) {
		if sent == b.N {
			there.Close(nil)
			break
		}
		sent++
		there.TryPush(Slot{}, nil, nil)
	}
	echo.Wait()
}

// BenchmarkChannel is the yardstick: the same throughput over a Go channel.
func BenchmarkChannel(b *testing.B) {
	b.ReportAllocs()
	c := make(chan Slot, 256)
	var producer sync.WaitGroup
	producer.Go(func() {
		for range b.N {
			c <- Slot{Token: 1}
		}
		close(c)
	})
	for range c {
	}
	producer.Wait()
}
