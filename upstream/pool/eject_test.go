package pool

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/fallback"
)

var errBroken = errors.New("broken")

// trio are three servers, of which a is for a test to make sick.
func trio() (a, b, c *server, endpoints []Endpoint) {
	a, b, c = &server{name: "a"}, &server{name: "b"}, &server{name: "c"}
	return a, b, c, []Endpoint{{Name: "a", Model: a}, {Name: "b", Model: b}, {Name: "c", Model: c}}
}

// ejects asks until the pool has ejected its first server. The client notices
// nothing.
func ejects(t *testing.T, p *Pool) {
	t.Helper()
	for range 200 {
		if p.Status()[0].Ejected {
			return
		}
		chosen(t, p, 1, "")
	}
	t.Fatal("it is not ejected")
}

func TestASickServerIsEjectedAndComesBackSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _, endpoints := trio()
		p := open(t, Options{AffinityBytes: -1, SlowStart: 20 * time.Second}, endpoints...)
		a.fail = errBroken
		ejects(t, p)
		require.Equal(t, 5, a.runs)
		chosen(t, p, 100, "")
		require.Equal(t, 5, a.runs, "it is passed by, not refused on the way")
		require.Equal(t, int64(5), p.Status()[0].Refused)

		<-time.After(31 * time.Second)
		chosen(t, p, 300, "")
		require.Equal(t, 6, a.runs, "one probe, of a real request, and it failed")
		require.True(t, p.Status()[0].Ejected)
		a.fail = nil
		chosen(t, p, 50, "")
		require.Equal(t, 6, a.runs)

		<-time.After(31 * time.Second)
		for p.Status()[0].Ejected {
			chosen(t, p, 1, "")
		}
		require.InDelta(t, 1000*0.1/2.1, chosen(t, p, 1000, "")["a"], 50, "about a tenth of its share at first")
		<-time.After(20 * time.Second)
		require.InDelta(t, 333, chosen(t, p, 1000, "")["a"], 60)
		require.Equal(t, fallback.Closed, p.Status()[0].Breaker.State)
	})
}

// TestFewRequestsAreProbes counts how many go by until one tries the server out.
func TestFewRequestsAreProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _, endpoints := trio()
		p := open(t, Options{}, endpoints...)
		a.fail = errBroken
		ejects(t, p)
		requests := 0
		for range 50 {
			<-time.After(31 * time.Second)
			for before := a.runs; a.runs == before; requests++ {
				chosen(t, p, 1, "")
			}
		}
		require.InDelta(t, 50*2.1/0.1, requests, 600, "a tenth of its share")
	})
}

func TestOneRequestAtATimeProbesAnEjectedServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c, endpoints := trio()
		p := open(t, Options{}, endpoints...)
		a.fail = errBroken
		ejects(t, p)
		<-time.After(31 * time.Second)
		before := a.runs
		a.step, b.step, c.step = time.Second, time.Second, time.Second
		var all sync.WaitGroup
		for i := range 500 {
			all.Go(func() {
				_, _, err := ask(t, p, strings.Repeat("x", i))
				require.NoError(t, err)
			})
		}
		all.Wait()
		require.Equal(t, before+1, a.runs)
	})
}

func TestNoMoreThanAShareIsEjectedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var endpoints []Endpoint
		for _, name := range []string{"a", "b", "c", "d"} {
			s := &server{name: name, fail: errBroken}
			if name == "d" {
				s.fail = nil
			}
			endpoints = append(endpoints, Endpoint{Name: name, Model: s})
		}
		p := open(t, Options{Attempts: 4}, endpoints...)
		chosen(t, p, 300, "")
		ejected, sick := 0, 0
		for _, s := range p.Status() {
			if s.Ejected {
				ejected++
			}
			if s.Breaker.State == fallback.Open {
				sick++
			}
		}
		require.Equal(t, []int{3, 2}, []int{sick, ejected})
		before := endpointRuns(endpoints)
		chosen(t, p, 300, "")
		require.Greater(t, endpointRuns(endpoints)-before, 350, "the third is asked, breaker or not")
	})
}

func endpointRuns(endpoints []Endpoint) (n int) {
	for _, e := range endpoints {
		n += e.Model.(*server).runs
	}
	return n
}

func TestWhenAllAreSickAllAreUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alone := &server{name: "a", fail: errBroken}
		p := open(t, Options{}, Endpoint{Name: "a", Model: alone})
		for range 20 {
			_, _, err := ask(t, p, "x")
			require.ErrorIs(t, err, errBroken, "what the server says, rather than that there is none")
		}
		require.True(t, p.Status()[0].Ejected)
		alone.fail = nil
		require.Equal(t, map[string]int{"a": 10}, chosen(t, p, 10, ""))

		a, b, c, endpoints := trio()
		p = open(t, Options{MaxEjected: 1, Attempts: 1, AffinityBytes: -1}, endpoints...)
		a.fail, b.fail, c.fail = errBroken, errBroken, errBroken
		for range 60 {
			_, _, err := ask(t, p, "x")
			require.ErrorIs(t, err, errBroken)
		}
		for _, s := range p.Status() {
			require.True(t, s.Ejected)
		}
		a.fail, b.fail, c.fail = nil, nil, nil
		require.Len(t, chosen(t, p, 60, ""), 3)
	})
}

// TestWhatAStreamSaysOfAServer makes each of them sick in a way of its own.
func TestWhatAStreamSaysOfAServer(t *testing.T) {
	for name, c := range map[string]struct {
		make    func(*server)
		limits  fallback.Limits
		leaves  time.Duration // the client
		ejected bool
	}{
		"fails at once":                    {make: func(s *server) { s.fail = errBroken }, ejected: true},
		"breaks in the middle":             {make: func(s *server) { s.breaks = errBroken }, ejected: true},
		"stalls in the middle":             {make: func(s *server) { s.stalls = true }, ejected: true},
		"is too late":                      {make: func(s *server) { s.step = time.Second }, limits: fallback.Limits{FirstToken: 500 * time.Millisecond}, ejected: true},
		"is late where there is no limit":  {make: func(s *server) { s.step = time.Second }},
		"is busy":                          {make: func(s *server) { s.fail = haiku.ErrTooBusy }},
		"refuses what is the client's own": {make: func(s *server) { s.fail = haiku.ErrInvalidRequest }},
		"lacks the adapter":                {make: func(s *server) { s.fail = haiku.ModelNotFound("law") }},
		"is left by clients":               {make: func(s *server) { s.step = time.Hour }, leaves: time.Second},
		"is left in the middle":            {make: func(s *server) { s.stalls = true }, leaves: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, _, _, endpoints := trio()
				c.make(a)
				p := open(t, Options{AffinityBytes: -1, Breaker: fallback.BreakerOptions{Limits: c.limits}}, endpoints...)
				for range 100 {
					ctx, cancel := context.WithCancel(t.Context())
					if c.leaves > 0 {
						ctx, cancel = context.WithTimeout(t.Context(), c.leaves)
					}
					_, _ = haiku.NewStream(ctx, p, &haiku.Request{Prompt: "x"}).Text()
					cancel()
				}
				require.Equal(t, c.ejected, p.Status()[0].Ejected)
				require.Greater(t, a.runs, 1)
			})
		})
	}
}

func TestPoliciesThatAreNoneEjectNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _, endpoints := trio()
		a.fail = errBroken
		p := open(t, Options{Breaker: fallback.BreakerOptions{Policies: []fallback.Policy{}}}, endpoints...)
		chosen(t, p, 300, "")
		require.Greater(t, a.runs, 50, "about a third")
		require.False(t, p.Status()[0].Ejected)
	})
}

// lever is a Switch that an operator moves.
type lever struct {
	settings map[string]chan fallback.Setting
}

func (l lever) Watch(ctx context.Context, name string) iter.Seq2[fallback.Setting, error] {
	return func(yield func(fallback.Setting, error) bool) {
		for {
			select {
			case s := <-l.settings[name]:
				if !yield(s, nil) {
					return
				}
			case <-ctx.Done():
				yield(fallback.Setting{}, ctx.Err())
				return
			}
		}
	}
}

func (lever) Set(context.Context, string, fallback.Setting) (fallback.Setting, error) {
	return fallback.Setting{}, fallback.ErrChanged
}

func (lever) Probe(context.Context, string, time.Duration) (func(context.Context) error, error) {
	return nil, fallback.ErrTaken
}

func TestWhatAnOperatorLeavesAloneIsNotAskedAnyway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lever{map[string]chan fallback.Setting{"pool/a": make(chan fallback.Setting), "pool/b": make(chan fallback.Setting)}}
		p := open(t, Options{Breaker: fallback.BreakerOptions{Name: "pool", Switch: l}}, named("a", "b")...)
		l.settings["pool/a"] <- fallback.Setting{State: fallback.Open, Forced: true, Revision: 1}
		synctest.Wait()
		require.Equal(t, map[string]int{"b": 50}, chosen(t, p, 50, ""))
		l.settings["pool/b"] <- fallback.Setting{State: fallback.Open, Forced: true, Revision: 1}
		synctest.Wait()
		_, _, err := ask(t, p, "x")
		require.ErrorIs(t, err, ErrNoServer)
		l.settings["pool/a"] <- fallback.Setting{State: fallback.Closed, Revision: 2}
		synctest.Wait()
		require.Equal(t, map[string]int{"a": 50}, chosen(t, p, 50, ""))
	})
}

// TestAPermitIsNotLostToARequestThatIsNotPutThere has a probe that the server's
// Model cannot take.
func TestAPermitIsNotLostToARequestThatIsNotPutThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &server{name: "a", fail: errBroken}
		b := &extended{server{name: "b"}}
		p := open(t, Options{MaxEjected: 0.5, AffinityBytes: -1}, Endpoint{Name: "b", Model: b}, Endpoint{Name: "a", Model: a})
		for !p.Status()[1].Ejected {
			chosen(t, p, 1, "")
		}
		a.fail = nil
		<-time.After(31 * time.Second)
		tools := []haiku.Extension{{Name: "tools", Value: []byte("[]")}}
		refused := 0
		for range 200 {
			_, err := haiku.NewStream(t.Context(), p, &haiku.Request{Prompt: "x", Extensions: tools}).Text()
			if err != nil {
				require.ErrorIs(t, err, haiku.ErrUnsupported)
				refused++
			}
		}
		require.Greater(t, refused, 1)
		require.True(t, p.Status()[1].Ejected)
		require.NotZero(t, chosen(t, p, 200, "")["a"], "the permit is there")
		require.False(t, p.Status()[1].Ejected)
	})
}

type extended struct{ server }

func (*extended) TakesExtensions(*haiku.Request) error { return nil }

// TestEjectionKeepsItsRulesWhateverHappens makes servers sick and well at random.
func TestEjectionKeepsItsRulesWhateverHappens(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(rt, "servers")
		share := rapid.SampledFrom([]float64{0.1, 0.5, 1}).Draw(rt, "share")
		steps := rapid.SliceOfN(rapid.IntRange(0, 2*n+1), 1, 40).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) {
			servers := make([]*server, n)
			var endpoints []Endpoint
			for i := range servers {
				servers[i] = &server{name: string(rune('a' + i))}
				endpoints = append(endpoints, Endpoint{Name: servers[i].name, Model: servers[i]})
			}
			p := open(t, Options{MaxEjected: share, Attempts: n, AffinityBytes: -1}, endpoints...)
			for _, step := range steps {
				switch {
				case step < n:
					servers[step].fail = errBroken
				case step < 2*n:
					servers[step-n].fail = nil
				default:
					<-time.After(31 * time.Second)
				}
				for range 30 {
					_, model, err := ask(t, p, "x")
					if err != nil {
						require.ErrorIs(t, err, errBroken)
					}
					ejected, well := 0, false
					for i, s := range p.Status() {
						if s.Ejected {
							ejected++
						}
						well = well || !s.Ejected && servers[i].fail == nil
						require.False(t, s.Name == model && servers[i].fail != nil)
					}
					require.LessOrEqual(t, ejected, max(1, int(share*float64(n))))
					require.True(t, err == nil || !well, "who is well answers")
				}
			}
		})
	})
}
