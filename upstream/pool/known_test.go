package pool

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/fallback"
	"github.com/intelliparadigm/haiku/upstream"
)

// chosen asks a pool n times, one after the other, and counts who answers.
func chosen(t *testing.T, p *Pool, n int, model string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for range n {
		stream := haiku.NewStream(t.Context(), p, &haiku.Request{Model: model, Prompt: fmt.Sprint(rand.Uint64(), " ", strings.Repeat("x", 2000))})
		_, err := stream.Text()
		require.NoError(t, err)
		counts[stream.Model()]++
	}
	return counts
}

func named(names ...string) (endpoints []Endpoint) {
	for _, name := range names {
		endpoints = append(endpoints, Endpoint{Name: name, Model: &server{name: name}})
	}
	return endpoints
}

func TestIdleServersShareTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := chosen(t, open(t, Options{AffinityBytes: -1}, named("a", "b", "c", "d")...), 400, "")
		for name, n := range counts {
			require.InDelta(t, 100, n, 40, name)
		}
		require.Len(t, counts, 4)
	})
}

func TestOfTwoWithAsManyRequestsTheOneWithMemoryLeftIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := new(Gauge), new(Gauge)
		p := open(t, Options{AffinityBytes: -1}, Endpoint{Name: "a", Model: &server{name: "a"}, Gauge: a}, Endpoint{Name: "b", Model: &server{name: "b"}, Gauge: b})
		a.Report(Load{Running: 3, KV: 0.7})
		b.Report(Load{Running: 3, KV: 0.1})
		require.Equal(t, map[string]int{"b": 20}, chosen(t, p, 20, ""))
	})
}

func TestWhatHasEndedSinceIsNoLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gauge, slow := new(Gauge), &server{name: "a", step: 100 * time.Millisecond}
		b := &server{name: "b", step: time.Hour}
		p := open(t, Options{AffinityBytes: -1}, Endpoint{Name: "a", Model: slow, Gauge: gauge})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range 4 {
			go func() { _, _ = haiku.NewStream(ctx, p, &haiku.Request{Prompt: "x"}).Text() }()
		}
		synctest.Wait()
		gauge.Report(Load{Running: 4})
		require.NoError(t, p.Add(Endpoint{Name: "b", Model: b}))
		p.members[1].joined = time.Time{}
		<-time.After(250 * time.Millisecond) // the four are over, and the report is still young
		go func() { _, _ = haiku.NewStream(ctx, p, &haiku.Request{Prompt: "x"}).Text() }()
		go func() { _, _ = haiku.NewStream(ctx, p, &haiku.Request{Prompt: "x"}).Text() }()
		synctest.Wait()
		require.Equal(t, 5, slow.runs, "one each")
		cancel()
		synctest.Wait()
	})
}

func TestASilentServerIsNotTakenForAnIdleOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := new(Gauge), new(Gauge)
		p := open(t, Options{AffinityBytes: -1}, Endpoint{Name: "a", Model: &server{name: "a"}}, Endpoint{Name: "b", Model: &server{name: "b"}, Gauge: a},
			Endpoint{Name: "c", Model: &server{name: "c"}, Gauge: b})
		a.Report(Load{Running: 2})
		b.Report(Load{Running: 8})
		counts := chosen(t, p, 1000, "")
		require.Greater(t, counts["b"], counts["a"], "a is held to be as loaded as the others are on average")
	})
}

func TestAServersOddFiguresAreNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gauge := new(Gauge)
		p := open(t, Options{AffinityBytes: -1}, Endpoint{Name: "a", Model: &server{name: "a"}, Gauge: gauge}, Endpoint{Name: "b", Model: &server{name: "b"}})
		for _, odd := range []Load{{KV: math.NaN(), Running: 50}, {Queued: -100, Running: 50, KV: math.Inf(-1)}, {KV: math.Inf(1)}, {Queued: math.MaxInt, Running: math.MaxInt}} {
			gauge.Report(odd)
			for _, s := range p.Status() {
				require.False(t, math.IsNaN(s.Load.KV) || s.Load.KV > 1, "%+v", s.Load)
			}
			require.NotZero(t, chosen(t, p, 10, ""), odd)
		}
	})
}

func TestABaseModelIsNoAdapter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full, room := new(Gauge), new(Gauge)
		p := open(t, Options{AffinityBytes: -1}, Endpoint{Name: "full", Model: &server{name: "full"}, Gauge: full}, Endpoint{Name: "room", Model: &server{name: "room"}, Gauge: room})
		full.Report(Load{Adapters: map[string]Adapter{"law": Active}})
		room.Report(Load{Running: 3, AdapterRoom: true, Adapters: map[string]Adapter{}})
		require.Equal(t, map[string]int{"full": 10}, chosen(t, p, 10, "base"), "where it computes does not depend on the room for adapters")
		require.Equal(t, map[string]int{"full": 10}, chosen(t, p, 10, "law"))
	})
}

func TestAServerWithoutTheAdapterSendsTheRequestOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &server{name: "a", fail: haiku.ModelNotFound("law")}, &server{name: "b"}
		p := open(t, Options{AffinityBytes: -1}, Endpoint{Name: "a", Model: a}, Endpoint{Name: "b", Model: b})
		require.Equal(t, map[string]int{"b": 10}, chosen(t, p, 10, "law"))
		b.fail = haiku.ErrOverloaded
		_, _, err := ask(t, p, "x")
		require.ErrorIs(t, err, haiku.ErrOverloaded, "somebody has it, and is busy")
		b.fail = haiku.ModelNotFound("law")
		_, _, err = ask(t, p, "x")
		require.ErrorIs(t, err, haiku.ErrModelNotFound)
	})
}

// TestMetricsArePolledAsOftenAsOptionsSay has them take a while.
func TestMetricsArePolledAsOftenAsOptionsSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var polls atomic.Int64
		open(t, Options{Poll: 100 * time.Millisecond}, Endpoint{Name: "a", Model: &server{}, Metrics: func(context.Context) (Load, error) {
			<-time.After(7 * time.Millisecond)
			polls.Add(1)
			return Load{}, nil
		}})
		<-time.After(2 * time.Second)
		require.InDelta(t, 20, polls.Load(), 2)
	})
}

// TestWhatAHeaderLeavesOutIsStillPolled reports what vLLM's header holds: not how
// many run, and nothing of adapters.
func TestWhatAHeaderLeavesOutIsStillPolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gauge := new(Gauge)
		p := open(t, Options{}, Endpoint{Name: "a", Model: &server{}, Gauge: gauge, Metrics: func(context.Context) (Load, error) {
			return Load{Queued: 1, Running: 7, KV: 0.2, Adapters: map[string]Adapter{"law": Active}}, nil
		}})
		synctest.Wait()
		for range 40 {
			gauge.Report(Told(upstream.Load{Queued: 3, Running: math.NaN(), KVUse: 0.4}))
			require.Equal(t, Load{Queued: 3, Running: 7, KV: 0.4, Adapters: map[string]Adapter{"law": Active}}, p.Status()[0].Load)
			<-time.After(31 * time.Millisecond) // never at the moment of a poll
		}
	})
}

// TestASlowStartHoldsForAffinityToo asks one by one, so that no bound is near.
func TestASlowStartHoldsForAffinityToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, Options{SlowStart: time.Hour}, named("a", "b")...)
		require.NoError(t, p.Add(named("new")[0]))
		require.InDelta(t, 1000*0.1/2.1, chosen(t, p, 1000, "")["new"], 40)
	})
}

// TestAConversationStaysWhereItBegan goes on with conversations of any length of
// system prompt, question and answers.
func TestAConversationStaysWhereItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, Options{}, named("a", "b", "c", "d", "e")...)
		used := map[string]bool{}
		for i, system := range []int{0, 10, 500, 1020, 1024, 3000, 8000} {
			for j, question := range []int{1, 50, 2000} {
				talk := []haiku.Message{{Role: haiku.RoleUser, Content: fmt.Sprint(i, j) + strings.Repeat("q", question)}}
				if system > 0 {
					talk = append([]haiku.Message{{Role: haiku.RoleSystem, Content: strings.Repeat("s", system)}}, talk...)
				}
				first := ""
				for turn := range 6 {
					stream := haiku.NewStream(t.Context(), p, &haiku.Request{Messages: talk})
					_, err := stream.Text()
					require.NoError(t, err)
					if turn == 0 {
						first = stream.Model()
						used[first] = true
					}
					require.Equal(t, first, stream.Model(), "system %d, question %d, turn %d", system, question, turn)
					talk = append(talk, haiku.Message{Role: haiku.RoleAssistant, Content: strings.Repeat("a", 100)}, haiku.Message{Role: haiku.RoleUser, Content: fmt.Sprint(turn)})
				}
			}
		}
		require.Len(t, used, 5, "also those of one system prompt lie anywhere")
	})
}

func TestAProbeThatPanicsHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, Options{Probe: time.Second}, Endpoint{Name: "a", Model: &server{}, Probe: func(context.Context) error { panic("probe") },
			Metrics: func(context.Context) (Load, error) { panic("metrics") }})
		<-time.After(3 * time.Second)
		require.True(t, p.Status()[0].Down)
	})
}

// TestALogNamesTheModelOfAServerToo: servers of two models may have one name.
func TestALogNamesTheModelOfAServerToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		a := &server{sick: true}
		p, err := New(Options{
			Probe: time.Second, Breaker: fallback.BreakerOptions{Name: "poet/servers"}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		}, Endpoint{Name: "a", Model: a, Probe: a.probe})
		require.NoError(t, err)
		<-time.After(3 * time.Second)
		a.set(func() { a.sick = false })
		<-time.After(3 * time.Second)
		p.Close()
		require.Equal(t, 2, strings.Count(log.String(), "server=poet/servers/a"), log.String())
	})
}

func TestAClientThatLeavesIsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, Options{}, Endpoint{Name: "a", Model: &server{step: time.Hour}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := haiku.NewStream(ctx, p, &haiku.Request{Prompt: "x"}).Text()
		require.Error(t, err)
		require.Zero(t, p.Status()[0].Refused)
	})
}

func TestAGaugeKeepsWhatIsNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gauge, own := new(Gauge), new(atomic.Int64)
		gauge.follow(own)
		own.Store(3)
		begun := time.Now()
		<-time.After(time.Millisecond)
		gauge.Report(Load{Queued: 5, Running: -1, KV: 0.5})
		gauge.report(Load{Queued: 1, Running: 4, KV: 0.1}, begun) // was asked for before, and came later
		load, others, fresh := gauge.read(time.Second)
		require.Equal(t, Load{Queued: 5, Running: 4, KV: 0.5}, load)
		require.Equal(t, 6, others, "all but the three of this process")
		require.True(t, fresh)
		own.Store(0)
		_, others, _ = gauge.read(time.Second)
		require.Equal(t, 6, others, "they were there when it was told")
		<-time.After(time.Second)
		load, _, fresh = gauge.read(time.Second)
		require.Equal(t, Load{Queued: 5, Running: -1, KV: 0.5}, load, "each has its own age")
		require.True(t, fresh)
	})
}

// lists is a server that tells its models.
type lists struct {
	server
	models []haiku.ModelInfo
}

func (l *lists) Models() []haiku.ModelInfo { return l.models }

func TestAnAdapterIsWhatAServerListsWithAParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		models := []haiku.ModelInfo{{ID: "base"}, {ID: "law", Parent: "base"}}
		full, room := new(Gauge), new(Gauge)
		p := open(t, Options{AffinityBytes: -1}, Endpoint{Name: "full", Model: &lists{server{name: "full"}, models}, Gauge: full},
			Endpoint{Name: "room", Model: &lists{server{name: "room"}, models}, Gauge: room})
		full.Report(Load{Adapters: map[string]Adapter{"poems": Active}})
		room.Report(Load{Running: 3, AdapterRoom: true, Adapters: map[string]Adapter{}})
		require.Equal(t, map[string]int{"room": 10}, chosen(t, p, 10, "law"), "it runs nowhere yet")
		require.Equal(t, map[string]int{"full": 10}, chosen(t, p, 10, "base"))
		require.Equal(t, models, p.Models())
	})
}

func TestWhatDecidesWhereAPromptBelongs(t *testing.T) {
	image := func(url string) *haiku.Request {
		return &haiku.Request{Messages: []haiku.Message{{Role: haiku.RoleUser, Extensions: []haiku.Extension{{Name: "content", Value: []byte(url)}}}}}
	}
	talk := func(texts ...string) *haiku.Request {
		req := &haiku.Request{}
		for i, text := range texts {
			role := [...]haiku.Role{haiku.RoleSystem, haiku.RoleUser, haiku.RoleAssistant, haiku.RoleUser}[i]
			req.Messages = append(req.Messages, haiku.Message{Role: role, Content: text})
		}
		return req
	}
	plain := func(s string) *haiku.Request { return &haiku.Request{Prompt: s} }
	tokens := func(ids ...int32) *haiku.Request { return &haiku.Request{PromptTokens: ids} }
	long := strings.Repeat("x", 20_000)
	for name, c := range map[string]struct {
		a, b *haiku.Request
		most int
		same bool
	}{
		"another question":          {a: talk("s", "one"), b: talk("s", "two")},
		"a later turn":              {a: talk("s", "one"), b: talk("s", "one", "answer", "more"), same: true},
		"a document":                {a: talk(long, "one"), b: talk(long, "two"), same: true},
		"a system prompt cut short": {a: talk("system prompt", "one"), b: talk("system other", "two"), most: 6, same: true},
		"where a message ends":      {a: talk("ab", "c"), b: talk("a", "bc")},
		"another image":             {a: image("[1]"), b: image("[2]")},
		"the same image":            {a: image("[1]"), b: image("[1]"), same: true},
		"plain beginnings":          {a: plain(long[:1024] + "a"), b: plain(long[:1024] + "bcd"), same: true},
		"other plain beginnings":    {a: plain(long[:1000] + "a"), b: plain(long[:1000] + "b")},
		"tokens":                    {a: tokens(1, 2, 3), b: tokens(1, 2, 4)},
		"beginnings of tokens":      {a: tokens(1, 2, 3), b: tokens(1, 2, 4), most: 8, same: true},
		"another tenant":            {a: &haiku.Request{Tenant: "a", Prompt: "x"}, b: &haiku.Request{Tenant: "b", Prompt: "x"}},
		"another model":             {a: &haiku.Request{Model: "a", Prompt: "x"}, b: &haiku.Request{Model: "b", Prompt: "x"}},
	} {
		require.Equal(t, c.same, affinityOf(c.a, c.most) == affinityOf(c.b, c.most), name)
	}
	require.Zero(t, affinityOf(plain("x"), -1))
	require.Equal(t, uint64(0x1a3a0e00f54f9123), affinityOf(talk("system", "question"), 0), "the same in every process and version")
}
