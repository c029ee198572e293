package outage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func newBreaker() *breaker {
	return &breaker{threshold: 3, pause: time.Second, maxPause: 5 * time.Second}
}

var epoch0 = time.Unix(1000, 0)

func at(seconds float64) time.Time { return epoch0.Add(time.Duration(seconds * float64(time.Second))) }

// try makes one operation that ends at once, and reports whether it ran.
func try(b *breaker, now time.Time, v verdict) (change, bool) {
	p, ok := b.allow(now)
	if !ok {
		return unchanged, false
	}
	c, _ := b.done(now, p, v)
	return c, true
}

func down(t *testing.T, b *breaker) {
	for range b.threshold - 1 {
		c, _ := try(b, at(0), bad)
		require.Equal(t, unchanged, c)
	}
	c, _ := try(b, at(0), bad)
	require.Equal(t, wentDown, c)
}

func TestOnlyFailuresInARowOpen(t *testing.T) {
	b := newBreaker()
	for range 10 {
		_, _ = try(b, at(0), bad)
		_, _ = try(b, at(0), bad)
		_, _ = try(b, at(0), void)
		_, _ = try(b, at(0), good)
	}
	require.False(t, b.isOpen())
	down(t, b)
	require.True(t, b.isOpen())
}

func TestThePauseGrowsAndOneProbeCloses(t *testing.T) {
	b := newBreaker()
	down(t, b)
	now := 0.0
	for _, pause := range []float64{1, 2, 4, 5, 5} {
		_, ran := try(b, at(now+pause-0.001), bad)
		require.False(t, ran, "before a pause of %v s is over", pause)
		now += pause
		c, ran := try(b, at(now), bad)
		require.True(t, ran)
		require.Equal(t, unchanged, c, "a failed probe is no news")
	}
	p, ok := b.allow(at(now + 5))
	require.True(t, ok)
	c, lasted := b.done(at(now+6), p, good)
	require.Equal(t, wentUp, c)
	require.Equal(t, time.Duration(now+6)*time.Second, lasted)
	down(t, b)
	_, ran := try(b, at(1), good)
	require.True(t, ran, "the pause begins small again")
}

func TestThereIsOneProbeAtATime(t *testing.T) {
	b := newBreaker()
	down(t, b)
	p, ok := b.allow(at(1))
	require.True(t, ok)
	_, ok = b.allow(at(100))
	require.False(t, ok)
	_, _ = b.done(at(100), p, void)
	_, ok = b.allow(at(100))
	require.True(t, ok, "a probe whose caller left gives its place to the next")
}

func TestWhoBeganBeforeAMoveJudgesNothing(t *testing.T) {
	b := newBreaker()
	early, _ := b.allow(at(0))
	down(t, b)
	_, _ = b.done(at(0), early, good)
	require.True(t, b.isOpen())
	probe, _ := b.allow(at(1))
	_, _ = b.done(at(1), early, bad)
	c, _ := b.done(at(1), probe, good)
	require.Equal(t, wentUp, c)
	for range 5 {
		_, _ = b.done(at(1), early, bad)
	}
	require.False(t, b.isOpen())
}

// TestTheBreakerAlwaysTriesAgain runs random operations that overlap: down and
// up alternate, at most one runs while the server is given up, and after the
// longest pause there is always a probe.
func TestTheBreakerAlwaysTriesAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, now, isDown := newBreaker(), epoch0, false
		var running []permit
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			if p, ok := b.allow(now); ok {
				running = append(running, p)
			}
			if len(running) > 0 && rapid.Bool().Draw(t, "ends") {
				i := rapid.IntRange(0, len(running)-1).Draw(t, "which")
				c, _ := b.done(now, running[i], rapid.SampledFrom([]verdict{void, good, bad}).Draw(t, "verdict"))
				running = append(running[:i], running[i+1:]...)
				require.True(t, c == unchanged || (c == wentDown) != isDown, "down and up alternate")
				isDown = isDown != (c != unchanged)
			}
			require.Equal(t, isDown, b.isOpen())
		}
		for _, p := range running {
			_, _ = b.done(now, p, void)
		}
		_, ok := b.allow(now.Add(b.maxPause))
		require.True(t, ok)
	})
}
