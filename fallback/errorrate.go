package fallback

import (
	"cmp"
	"fmt"
)

// ErrorRate opens when too many attempts fail, or nearly all are rejected. A
// model that rejects some of its requests protects the rest, and taking the rest
// from it too would help nobody.
type ErrorRate struct {
	// Share of failures among the attempts in the window; 0 means 0.5.
	Share float64
	// Rejected is the share of failures and rejections together; 0 means 0.9.
	Rejected float64
	// Least is how many attempts there have to be; 0 means 10.
	Least int64
}

// Judge returns a judge of the window's counts.
func (p ErrorRate) Judge(Limits) Judge {
	return errorRateJudge{ErrorRate{Share: cmp.Or(p.Share, 0.5), Rejected: cmp.Or(p.Rejected, 0.9), Least: cmp.Or(p.Least, 10)}}
}

type errorRateJudge struct{ ErrorRate }

func (j errorRateJudge) Observe(s *Sample) string {
	if s.Moment == Late || s.Moment == Silent || s.Moment == Ended && s.Outcome.Class != Failed && s.Outcome.Class != Rejected {
		return "" // no share has grown
	}
	r, all := s.Recent, s.Recent.Total()
	switch {
	case all < j.Least:
		return ""
	case float64(r.Failed) >= j.Share*float64(all):
		return fmt.Sprintf("%d of %d attempts failed", r.Failed, all)
	case float64(r.Failed+r.Rejected) >= j.Rejected*float64(all):
		return fmt.Sprintf("%d of %d attempts failed and %d were rejected", r.Failed, all, r.Rejected)
	}
	return ""
}

func (errorRateJudge) Reset() {}
