package fallback

import (
	"cmp"
	"fmt"
	"time"
)

// Baseline opens when the time to first token has become a multiple of what it
// used to be, wherever the limit is: a model that took 8 ms and takes 80 is sick
// long before it is over a limit of 120.
//
// What it used to be is learned slowly from answers, each of which counts for at
// most twice the baseline, so that a bad hour hardly moves it and a lasting change
// does.
type Baseline struct {
	// Factor is the multiple; 0 means 4.
	Factor float64
	// Learn is how many answers are learned from before any is judged; 0 means 50.
	Learn int
	// Floor is the time up to which a first token is always good enough, so that
	// the jitter of fast models is none of a breaker's business; 0 means 20 ms.
	Floor time.Duration
}

// Judge returns a judge with nothing learned.
func (p Baseline) Judge(Limits) Judge {
	return &baselineJudge{Baseline: Baseline{Factor: cmp.Or(p.Factor, 4), Learn: cmp.Or(p.Learn, 50), Floor: cmp.Or(p.Floor, 20*time.Millisecond)}}
}

type baselineJudge struct {
	Baseline
	seen   int
	usual  float64 // ns, of the last few hundred answers
	now    float64 // ns, of the last few
	recent int     // answers since Reset
}

// How much one answer moves the two means.
const (
	usualStep = 1.0 / 256
	nowStep   = 1.0 / 8
	// nowLeast is how many answers the short mean needs to mean anything.
	nowLeast = 8
)

func (j *baselineJudge) Observe(s *Sample) string {
	first := float64(s.Outcome.FirstToken)
	if s.Moment != Ended || first <= 0 {
		return ""
	}
	j.learn(first)
	if j.seen < j.Learn || j.recent < nowLeast || j.now <= float64(j.Floor) || j.now < j.Factor*j.usual {
		return ""
	}
	return fmt.Sprintf("first tokens take %v, usually %v",
		time.Duration(j.now).Round(time.Millisecond), time.Duration(j.usual).Round(time.Microsecond))
}

// learn moves both means. The first answers move the long one as an average
// does.
func (j *baselineJudge) learn(first float64) {
	j.seen++
	usual := first
	if j.seen > 1 {
		usual = min(first, 2*j.usual)
	}
	j.usual += max(usualStep, 1/float64(j.seen)) * (usual - j.usual)
	j.recent++
	j.now += max(nowStep, 1/float64(j.recent)) * (first - j.now)
}

// Reset keeps what is usual.
func (j *baselineJudge) Reset() { j.now, j.recent = 0, 0 }
