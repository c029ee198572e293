package fallback

import (
	"cmp"
	"fmt"
)

// SlowRate opens when too many of the answers that came were slow, by their first
// token or by the gaps between tokens.
type SlowRate struct {
	// Share of the answers in the window; 0 means 0.5.
	Share float64
	// Least is how many answers there have to be; 0 means 20.
	Least int64
}

// Judge returns a judge of the window's counts.
func (p SlowRate) Judge(Limits) Judge {
	return slowRateJudge{SlowRate{Share: cmp.Or(p.Share, 0.5), Least: cmp.Or(p.Least, 20)}}
}

type slowRateJudge struct{ SlowRate }

func (j slowRateJudge) Observe(s *Sample) string {
	if s.Moment == Late || s.Moment == Silent || s.Moment == Ended && s.Outcome.Class != Slow {
		return "" // the share has not grown
	}
	answers := s.Recent.OK + s.Recent.Slow
	if answers < j.Least || float64(s.Recent.Slow) < j.Share*float64(answers) {
		return ""
	}
	return fmt.Sprintf("%d of %d answers were slow", s.Recent.Slow, answers)
}

func (slowRateJudge) Reset() {}
