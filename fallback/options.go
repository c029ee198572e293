package fallback

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"
)

// BreakerOptions say when a model is left alone, and for how long. The zero value
// is ready to use. Durations of zero mean what their comment says; negative ones
// are refused unless it says what they mean.
type BreakerOptions struct {
	// Name names the model, in logs and among replicas.
	Name string
	// Limits are from where on an answer is slow: 120 ms to the first token, 200 ms
	// from each token to the next in the mean, and a silence of five times that
	// mean, or of 5 s where the mean has no limit. Negative: never.
	Limits Limits
	// Policies are the ways to find it sick; nil means [DefaultPolicies]. None at
	// all is a breaker that only follows its operator.
	Policies []Policy
	// Window is the span of time whose rates are judged; 0 means 30 s.
	Window time.Duration

	// OpenFor is how long it is left alone; 0 means 5 minutes. A failure that
	// asks for more with its Retry-After gets it, up to an hour, and one that
	// comes while it is left alone begins the time anew.
	OpenFor time.Duration
	// ProbeFor is how long a probe keeps others from probing; 0 means 30 s. One
	// that takes longer goes on beside the next.
	ProbeFor time.Duration
	// Ramp are the shares of the traffic that it gets after a good probe, one
	// after the other, each above the one before and at most 1; nil means 0.1,
	// 0.25, 0.5.
	Ramp []float64
	// RampAnswers is how many good answers each of them takes; 0 means 5. One is
	// enough once a share has lasted for OpenFor.
	RampAnswers int

	// Counters and Switch are what replicas share, each nil for nothing. See
	// [Breaker] for what happens when they are out of reach.
	Counters Counters
	Switch   Switch
	// Interval is the time between two exchanges of counts while there is
	// traffic; 0 means 250 ms.
	Interval time.Duration
	// Patience is how long one operation on either may take; 0 means a second.
	Patience time.Duration
	// Replica names this process to people who read the switch.
	Replica string

	// OnChange is told of changes: on a goroutine of its own, one at a time and
	// in order, no more than ten at once and then one a second. What came too
	// fast is told as one change.
	OnChange func(Change)
	// Logger is where changes and outages of what is shared are logged; nil means
	// slog's default.
	Logger *slog.Logger
}

// longestWait bounds what a model can ask for by its Retry-After.
const longestWait = time.Hour

// filled returns the options with defaults for what is zero.
func (o BreakerOptions) filled() (BreakerOptions, error) {
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"Window", &o.Window, 30 * time.Second},
		{"OpenFor", &o.OpenFor, 5 * time.Minute},
		{"ProbeFor", &o.ProbeFor, 30 * time.Second},
		{"Interval", &o.Interval, 250 * time.Millisecond},
		{"Patience", &o.Patience, time.Second},
	} {
		if *d.value < 0 {
			return o, fmt.Errorf("fallback: BreakerOptions.%s is negative: %v", d.name, *d.value)
		}
		*d.value = cmp.Or(*d.value, d.def)
	}
	if o.RampAnswers < 0 {
		return o, fmt.Errorf("fallback: BreakerOptions.RampAnswers is negative: %d", o.RampAnswers)
	}
	o.RampAnswers = cmp.Or(o.RampAnswers, 5)
	o.Limits.FirstToken = limit(o.Limits.FirstToken, 120*time.Millisecond)
	o.Limits.Gap = limit(o.Limits.Gap, 200*time.Millisecond)
	silence := 5 * time.Second
	if o.Limits.Gap != noLimit {
		silence = 5 * o.Limits.Gap
	}
	o.Limits.Silence = limit(o.Limits.Silence, silence)
	if o.Ramp == nil {
		o.Ramp = []float64{0.1, 0.25, 0.5}
	}
	o.Ramp = slices.Clone(o.Ramp)
	for i, share := range o.Ramp {
		if !(share > 0) || share > 1 || i > 0 && share <= o.Ramp[i-1] {
			return o, fmt.Errorf("fallback: BreakerOptions.Ramp is %v, want rising shares above 0 and at most 1", o.Ramp)
		}
	}
	if o.Policies == nil {
		o.Policies = DefaultPolicies()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, nil
}

// noLimit is a limit that nothing reaches.
const noLimit time.Duration = math.MaxInt64

// limit is d, its default for 0, and no limit if it is negative.
func limit(d, def time.Duration) time.Duration {
	if d < 0 {
		return noLimit
	}
	return cmp.Or(d, def)
}

// wait is how long a failure that asked for retryAfter makes a model be left
// alone.
func (o *BreakerOptions) wait(retryAfter time.Duration) time.Duration {
	return max(o.OpenFor, min(retryAfter, longestWait))
}
