package fallback

import (
	"sync/atomic"

	"github.com/intelliparadigm/haiku"
)

// ModelStats is what a chain has done with one of its models so far.
type ModelStats struct {
	Model  string
	Status Status // of its breaker
	// Attempts are the requests it was asked, and Served those that it answered,
	// whole or not.
	Attempts, Served int64
	// By what their attempts meant.
	OK, Slow, Failed, Rejected, Neutral int64
	// Refused requests were not put to it because of its breaker, and Lacking ones
	// because it does not support all that they ask for.
	Refused, Lacking int64
	// Recalled requests are those that it had the answer to at hand.
	Recalled int64
	// Usage is what its attempts used, and Wasted the part of it that nobody has
	// seen: that of attempts that did not serve.
	Usage, Wasted haiku.Usage
}

// Stats returns what became of all requests so far, by model.
func (c *Chain) Stats() []ModelStats {
	all := make([]ModelStats, len(c.members))
	for i, m := range c.members {
		all[i] = m.stats.read()
		all[i].Model, all[i].Status = m.name, m.breaker.Status()
	}
	return all
}

// memberStats counts.
type memberStats struct {
	served, refused, lacking, recalled atomic.Int64
	classes                            [len(classNames)]atomic.Int64
	used, wasted                       usage
	overtaken                          atomic.Int64 // in a row
}

type usage struct{ prompt, completion, cached atomic.Int64 }

func (u *usage) add(v haiku.Usage) {
	u.prompt.Add(int64(v.PromptTokens))
	u.completion.Add(int64(v.CompletionTokens))
	u.cached.Add(int64(v.CachedTokens))
}

func (u *usage) read() haiku.Usage {
	return haiku.Usage{
		PromptTokens: int(u.prompt.Load()), CompletionTokens: int(u.completion.Load()), CachedTokens: int(u.cached.Load()),
	}
}

// note counts an attempt that has ended.
func (s *memberStats) note(a *attempt, served bool) {
	s.classes[a.outcome.Class].Add(1)
	s.used.add(a.branch.Usage())
	if served {
		s.served.Add(1)
	} else {
		s.wasted.add(a.branch.Usage())
	}
}

func (s *memberStats) read() ModelStats {
	m := ModelStats{
		Served: s.served.Load(), Refused: s.refused.Load(), Lacking: s.lacking.Load(), Recalled: s.recalled.Load(),
		OK: s.classes[OK].Load(), Slow: s.classes[Slow].Load(), Failed: s.classes[Failed].Load(),
		Rejected: s.classes[Rejected].Load(), Neutral: s.classes[Neutral].Load(),
		Usage: s.used.read(), Wasted: s.wasted.read(),
	}
	m.Attempts = m.OK + m.Slow + m.Failed + m.Rejected + m.Neutral
	return m
}
