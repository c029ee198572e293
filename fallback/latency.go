package fallback

import (
	"cmp"
	"fmt"
)

// Latency opens when a first token is over the limit while the model's health is
// below a score. A model that is late once in a while is not sick, and neither is
// one that has failed once and answers in time: it takes both.
type Latency struct {
	// Health is the score from 0 to 100 from which on a late first token is
	// forgiven; 0 means 95.
	Health float64
}

// Judge returns a judge of health.
func (p Latency) Judge(l Limits) Judge {
	return &latencyJudge{limits: l, least: cmp.Or(p.Health, 95)}
}

type latencyJudge struct {
	limits Limits
	least  float64
	health health
}

// Observe judges as soon as an attempt is late, by what became of those before:
// nobody is condemned by one case.
func (j *latencyJudge) Observe(s *Sample) string {
	if s.Moment == Ended {
		j.health.add(j.grade(&s.Outcome))
	}
	if s.Moment != Late {
		return ""
	}
	score := j.health.score()
	if score >= j.least {
		return ""
	}
	return fmt.Sprintf("a first token took over %v at a health of %.0f", j.limits.FirstToken, score)
}

func (j *latencyJudge) Reset() { j.health = health{} }

// grade is what an outcome is worth, from 0 to 100. One that is late or slow by
// half is worth two thirds; a queue that is full is half of an answer.
func (j *latencyJudge) grade(o *Outcome) float64 {
	switch {
	case o.Class == Failed, o.Silent:
		return 0
	case o.Class == Rejected:
		return 50
	}
	grade := 1.0
	if o.FirstToken > j.limits.FirstToken {
		grade = float64(j.limits.FirstToken) / float64(o.FirstToken)
	}
	if o.Gap > j.limits.Gap {
		grade = min(grade, float64(j.limits.Gap)/float64(o.Gap))
	}
	return 100 * grade
}

// healthSpan is how many outcomes a health score looks back on.
const healthSpan = 10

// health is a mean of the grades of the last outcomes in which the newest weighs
// ten times as much as the tenth: of n outcomes ago the weight is 10-n. What has
// not happened yet counts as good.
type health struct {
	lost [healthSpan]float64 // 100 less the grade
	next int
}

func (h *health) add(grade float64) {
	h.lost[h.next] = 100 - grade
	h.next = (h.next + 1) % healthSpan
}

// score is from 0 to 100.
func (h *health) score() float64 {
	lost := 0.0
	for weight := 1; weight <= healthSpan; weight++ {
		lost += float64(weight) * h.lost[(h.next+weight-1)%healthSpan]
	}
	return 100 - lost/(healthSpan*(healthSpan+1)/2)
}
