package fallback

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// modelBreaker is what a breaker is meant to be, said as simply as possible: it
// trips on three failures in a row, is open for a minute, and goes through the
// shares 0.5 and 1, with four answers each, or one after a minute.
type modelBreaker struct {
	state   State
	era     int
	failed  int
	until   time.Duration
	stage   int // 0 probes, 1 and 2 shares
	passed  int
	calls   int           // at this share
	since   time.Duration // at this share
	probing int           // number of the call that probes, 0 for none
	ends    time.Duration
}

type modelCall struct {
	number, era int
	probe       bool
	real        call
}

const modelOpen, modelProbe = time.Minute, 10 * time.Second

func (m *modelBreaker) move(s State) {
	m.state, m.failed, m.stage, m.passed, m.calls, m.probing = s, 0, 0, 0, 0, 0
	m.era++
}

func (m *modelBreaker) trip(now time.Duration) {
	m.move(Open)
	m.until = now + modelOpen
}

func (m *modelBreaker) allow(now time.Duration, number int) (allowed, probe bool) {
	if m.state == Open && now >= m.until {
		m.move(HalfOpen)
	}
	switch {
	case m.state == Closed:
		return true, false
	case m.state == Open:
		return false, false
	case m.stage == 0:
		if m.probing != 0 && now < m.ends {
			return false, false
		}
		m.probing, m.ends = number, now+modelProbe
		return true, true
	case m.stage == 1:
		m.calls++
		return m.calls%2 == 0, false
	}
	return true, false
}

func (m *modelBreaker) end(now time.Duration, c modelCall, class Class) {
	if c.era == m.era && c.probe && c.number == m.probing {
		m.probing = 0
	}
	bad := class == Failed || class == Rejected
	switch {
	case class == Neutral:
	case c.era != m.era:
		if m.state == Open && bad {
			m.until = max(m.until, now+modelOpen)
		}
	case m.state == HalfOpen && (bad || m.stage == 0 && class == Slow):
		m.trip(now)
	case m.state == HalfOpen && class == OK:
		if m.passed++; m.stage == 0 || m.passed == 4 || now-m.since >= modelOpen {
			if m.stage == 2 {
				m.move(Closed)
			} else {
				m.stage, m.passed, m.calls, m.probing, m.since = m.stage+1, 0, 0, 0, now
			}
		}
		m.failed = 0
	case class == Failed:
		if m.failed++; m.failed == 3 {
			m.trip(now)
		}
	case class != Rejected:
		m.failed = 0
	}
}

func TestABreakerIsWhatItIsMeantToBe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts, err := BreakerOptions{
			Policies: []Policy{Consecutive{Failures: 3}}, OpenFor: modelOpen, ProbeFor: modelProbe,
			Ramp: []float64{0.5, 1}, RampAnswers: 4,
		}.filled()
		require.NoError(t, err)
		c, m := newCore(&opts), &modelBreaker{}
		var now time.Duration
		var calls []modelCall
		number := 0
		check := func() {
			require.Equal(t, m.state, c.state)
			if m.state == Open {
				require.Equal(t, m.until, c.until)
			}
			require.EqualValues(t, m.era, c.era)
			c.check(t, now)
		}
		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) {
				now += time.Duration(rapid.Int64Range(0, int64(70*time.Second)).Draw(t, "time"))
			},
			"call": func(t *rapid.T) {
				number++
				v := c.allow(now, false)
				allowed, probe := m.allow(now, number)
				require.Equal(t, allowed, v.allowed)
				require.Equal(t, probe, v.probe != 0)
				if v.allowed {
					calls = append(calls, modelCall{number, m.era, probe, call{c.era, v.probe}})
				} else {
					require.Positive(t, v.after)
				}
				check()
			},
			"end": func(t *rapid.T) {
				if len(calls) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(calls)-1).Draw(t, "which")
				class := rapid.SampledFrom([]Class{Neutral, OK, OK, Slow, Failed, Failed, Rejected}).Draw(t, "class")
				m.end(now, calls[i], class)
				c.end(now, calls[i].real, Outcome{Class: class})
				calls = append(calls[:i], calls[i+1:]...)
				check()
			},
		})
	})
}

// check looks at what holds for a core at any time.
func (c *core) check(t *rapid.T, now time.Duration) {
	require.GreaterOrEqual(t, c.stage.share, 0.0)
	require.LessOrEqual(t, c.stage.share, 1.0)
	require.LessOrEqual(t, c.stage.number, len(c.opts.Ramp))
	require.Less(t, c.stage.credit, 1.0)
	if c.state != HalfOpen {
		require.Zero(t, c.stage)
		require.Zero(t, c.permit.call)
	}
	var sum Counts
	for i := range c.recent.parts {
		sum.Add(&c.recent.parts[i])
	}
	require.Equal(t, sum, c.recent.sum)
}
