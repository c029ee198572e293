package schedule

import (
	"strconv"
	"testing"
	"time"
)

// steady returns a Scheduler with sequences that all decode, in the way an
// engine has them after some time, and with requests that wait.
func steady(sequences, waiting int) *Scheduler {
	s := New(Config{BlockTokens: 16, Blocks: sequences * 600, MaxSequences: sequences, StepTokens: 4 * sequences})
	for i := range sequences + waiting {
		q := &Seq{Tenant: strconv.Itoa(i % 10), Root: Root(strconv.Itoa(i), 0, 1), Limit: 9000}
		q.Tokens = append(make([]int32, 0, 9000), make([]int32, 500)...)
		q.Blocks, q.keys = make([]int32, 0, 600), make([]Key, 0, 600)
		s.Add(q, time.Time{})
	}
	for range 1000 {
		s.onward(time.Time{})
	}
	return s
}

func (s *Scheduler) onward(now time.Time) (items int) {
	step := s.Next(now)
	for i := range step.Items {
		it := &step.Items[i]
		last := it.Last()
		s.Done(it.Seq, it.N)
		if last {
			s.Append(it.Seq, int32(i))
		}
	}
	return len(step.Items)
}

func BenchmarkStepOf256Sequences(b *testing.B) {
	for _, waiting := range []int{0, 100} {
		b.Run(strconv.Itoa(waiting)+" waiting", func(b *testing.B) {
			s := steady(256, waiting)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%5000 == 4999 {
					b.StopTimer()
					s = steady(256, waiting)
					b.StartTimer()
				}
				if s.onward(time.Time{}) != 256 {
					b.Fatal("not all decode")
				}
			}
		})
	}
}
