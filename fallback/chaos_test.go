package fallback

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku"
)

// deed is one thing that a model of chaos may do. It names what it says.
type deed struct {
	says string // text, empty for none
	step step
	over bool // nothing comes after it
	good bool // it is the good end
}

var deeds = map[string]func(t *rapid.T) deed{
	"role": func(*rapid.T) deed { return deed{step: says("")} },
	"takes": func(t *rapid.T) deed {
		return deed{step: takes(ms * time.Duration(rapid.IntRange(0, 200).Draw(t, "ms")))}
	},
	"deaf": func(t *rapid.T) deed {
		return deed{step: hears(ms * time.Duration(rapid.IntRange(0, 200).Draw(t, "ms")))}
	},
	"says": func(t *rapid.T) deed {
		text := rapid.StringMatching(`[a-z]{1,3}`).Draw(t, "text")
		return deed{says: text, step: says(text)}
	},
	"hangs":  func(*rapid.T) deed { return deed{step: hangs(), over: true} },
	"panics": func(*rapid.T) deed { return deed{step: also(func() { panic("chaos") }), over: true} },
	"breaks": func(*rapid.T) deed { return deed{step: errs(errBroken), over: true} },
	"leaves": func(*rapid.T) deed { return deed{step: errs(nil), over: true} },
	"busy":   func(*rapid.T) deed { return deed{step: errs(haiku.ErrTooBusy), over: true} },
	"short":  func(*rapid.T) deed { return deed{step: errs(haiku.ErrContextLength), over: true} },
	"ends":   func(*rapid.T) deed { return deed{step: ends(), over: true, good: true} },
}

// chaotic is a model that does anything.
type chaotic struct {
	*script
	text string // all that it says
	good bool   // and it ends well
}

func drawModel(t *rapid.T, name string) chaotic {
	c := chaotic{script: does(name)}
	names := []string{"role", "takes", "takes", "deaf", "says", "says", "says", "hangs", "panics", "breaks", "leaves", "busy", "short", "ends", "ends", "ends"}
	for len(c.steps) < 12 {
		d := deeds[rapid.SampledFrom(names).Draw(t, name)](t)
		if d.says != "" {
			d.says = name + d.says
			d.step = says(d.says)
		}
		c.text += d.says
		c.steps = append(c.steps, d.step)
		if c.good = d.good; d.over {
			break
		}
	}
	return c
}

// recorded is a test inside a bubble that tells the one outside what was wrong.
type recorded struct{ failure string }

func (r *recorded) Errorf(format string, args ...any) { r.failure = fmt.Sprintf(format, args...) }
func (r *recorded) FailNow()                          { panic(r) }

// inBubble runs test in virtual time and returns what was wrong.
func inBubble(t *testing.T, test func(t require.TestingT)) (failure string) {
	synctest.Test(t, func(*testing.T) {
		r := &recorded{}
		defer func() {
			if v := recover(); v != nil && v != r {
				panic(v)
			}
			failure = r.failure
		}()
		test(r)
	})
	return failure
}

// TestAnAnswerIsOneModelsWhateverHappens draws models that say, fail, panic, hang and
// do not listen, and clients that leave.
func TestAnAnswerIsOneModelsWhateverHappens(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var models []chaotic
		var others []haiku.Model
		for i := range rapid.IntRange(1, 4).Draw(rt, "models") {
			m := drawModel(rt, fmt.Sprint(i))
			models, others = append(models, m), append(others, m)
		}
		within := func(name string, most int) time.Duration {
			return ms * time.Duration(rapid.IntRange(0, most).Draw(rt, name))
		}
		o := Options{HedgeAfter: within("hedge", 100), FirstToken: within("budget", 150), Stall: within("stall", 500)}
		if rapid.Bool().Draw(rt, "open") {
			o.Breaker.Policies = []Policy{Consecutive{Failures: 1}}
		}
		leaves := []time.Duration{within("first", 2000), within("second", 2000), within("third", 2000)}
		failure := inBubble(t, func(t require.TestingT) {
			c, err := o.New(others[0], others[1:]...)
			require.NoError(t, err)
			defer c.Close()
			for _, after := range leaves {
				checkAnswer(t, c, models, after)
			}
		})
		if failure != "" {
			rt.Fatal(failure)
		}
	})
}

// checkAnswer asks once, as a client that leaves after a time, and looks at all that
// holds for any answer.
func checkAnswer(t require.TestingT, c *Chain, models []chaotic, leaves time.Duration) {
	before := c.Stats()
	ctx, cancel := context.WithTimeout(haiku.WithLogger(context.Background(), discard), leaves+1)
	defer cancel()
	a := ask(ctx, c, &haiku.Request{})
	after := c.Stats()

	served, tried := -1, true
	for i, m := range models {
		runs, running := m.count()
		require.Zero(t, running, "all have returned")
		require.EqualValues(t, runs, after[i].Attempts, "and are counted")
		one := after[i].Attempts + after[i].Refused + after[i].Lacking - before[i].Attempts - before[i].Refused - before[i].Lacking
		require.LessOrEqual(t, one, int64(1), "nobody is asked twice")
		tried = tried && one == 1
		if after[i].Served > before[i].Served {
			require.Equal(t, -1, served, "one serves")
			served = i
		}
		if s := c.Breaker(i).Status(); s.State == HalfOpen {
			require.Zero(t, c.Breaker(i).core.permit.call, "no permit is lost")
		}
	}
	if served < 0 {
		require.Error(t, a.err)
		require.Empty(t, a.text)
		client := errors.Is(a.err, haiku.ErrContextLength) // as the first model says
		require.True(t, tried || client || ctx.Err() != nil, "all have been tried: %v", a.err)
		return
	}
	m := models[served]
	require.True(t, strings.HasPrefix(m.text, a.text), "%q is of %q", a.text, m.text)
	require.Equal(t, m.name, a.model)
	if a.err == nil {
		require.Equal(t, m.text, a.text)
		require.True(t, m.good)
	}
}
