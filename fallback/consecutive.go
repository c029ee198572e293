package fallback

import "cmp"

// Consecutive opens when attempts fail, or answers fall silent, one after the
// other, however far apart: the failures of a model that few ask are never many in
// a window. What was rejected or neutral stands between two failures without
// parting them.
type Consecutive struct {
	// Failures in a row; 0 means 5.
	Failures int
}

// Judge returns a judge that counts.
func (p Consecutive) Judge(Limits) Judge { return &consecutiveJudge{limit: cmp.Or(p.Failures, 5)} }

type consecutiveJudge struct{ limit, failed int }

func (j *consecutiveJudge) Observe(s *Sample) string {
	switch o := &s.Outcome; {
	case s.Moment == Ended && o.Silent: // it was counted when it fell silent
	case s.Moment == Ended && (o.Class == OK || o.Class == Slow):
		j.failed = 0
	case s.Moment == Ended && o.Class == Failed, s.Moment == Silent:
		if j.failed++; j.failed >= j.limit {
			return "attempts failed or fell silent one after the other"
		}
	}
	return ""
}

func (j *consecutiveJudge) Reset() { j.failed = 0 }
