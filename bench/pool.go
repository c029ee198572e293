//go:build unix

package main

import (
	"container/heap"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/upstream/pool"
)

// What a server of the pool table is like.
const (
	poolServers = 8
	poolBlocks  = 2500
	poolPrompt  = 100 * time.Microsecond // a prompt token that is not cached
	poolAnswer  = 25 * time.Millisecond  // a token of the answer
)

// poolTable replays the Mooncake trace over servers that each have a prefix cache.
// Where requests go is decided by package pool itself, whose servers are Models
// that end when the trace's clock says so.
func poolTable(s settings) error {
	requests, err := traceIfThere(s.mooncake, haikutest.ReadMooncake)
	if err != nil || requests == nil {
		return err
	}
	if s.quick {
		requests = requests[:2000]
	}
	one := prefixHits(requests, poolServers*poolBlocks)
	fmt.Printf("%d servers with %d blocks of 512 tokens each, %v for a prompt token that is not cached, %v for one of the answer. "+
		"One cache of all blocks finds %.3f.\n\n", poolServers, poolBlocks, poolPrompt, poolAnswer, one)
	fmt.Println("| where a request goes | blocks found | of what one cache finds | requests at the server it goes to, mean | p99 | most |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: |")
	for _, c := range []struct {
		name  string
		bytes int
		turns bool // each in turn, without a pool
	}{
		{name: "each server in turn", turns: true},
		{name: "the least load", bytes: -1},
		{name: "affinity of 1 KiB, which all prompts share", bytes: 1 << 10},
		{name: "affinity of 2 blocks (4 KiB)", bytes: 4 << 10},
		{name: "affinity of 4 blocks (8 KiB)", bytes: 8 << 10},
		{name: "affinity of 8 blocks (16 KiB)", bytes: 16 << 10},
	} {
		f := newFleet()
		model, done, err := f.model(c.bytes, c.turns)
		if err != nil {
			return err
		}
		f.replay(model, requests)
		done()
		slices.Sort(f.loads)
		sum := 0
		for _, n := range f.loads {
			sum += n
		}
		found := f.found(requests)
		fmt.Printf("| %s | %.3f | %.0f%% | %.1f | %d | %d |\n", c.name, found, 100*found/one,
			float64(sum)/float64(len(f.loads)), f.loads[len(f.loads)*99/100], f.loads[len(f.loads)-1])
	}
	return nil
}

// fleet is a number of servers in virtual time.
type fleet struct {
	caches  [poolServers]*prefixCache
	running [poolServers]int
	loads   []int // at the server that a request goes to, with it
	under   underway
	placed  chan *ticket
}

// ticket is a request at a server.
type ticket struct {
	server int
	ends   time.Duration
	leave  chan struct{} // closed when it may end
	left   chan struct{} // closed when it has
}

// underway are the requests at servers, the first to end first.
type underway []*ticket

func (u underway) Len() int           { return len(u) }
func (u underway) Less(i, j int) bool { return u[i].ends < u[j].ends }
func (u underway) Swap(i, j int)      { u[i], u[j] = u[j], u[i] }
func (u *underway) Push(x any)        { *u = append(*u, x.(*ticket)) }
func (u *underway) Pop() any {
	last := (*u)[len(*u)-1]
	*u = (*u)[:len(*u)-1]
	return last
}

func newFleet() *fleet {
	f := &fleet{placed: make(chan *ticket)}
	for i := range f.caches {
		f.caches[i] = newPrefixCache(poolBlocks)
	}
	return f
}

// model is a Model of all servers.
func (f *fleet) model(affinityBytes int, turns bool) (haiku.Model, func(), error) {
	var endpoints []pool.Endpoint
	for i := range poolServers {
		endpoints = append(endpoints, pool.Endpoint{Name: fmt.Sprint("server-", i), Model: haiku.ModelFunc(func(_ context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
			t := &ticket{server: i, leave: make(chan struct{})}
			f.placed <- t
			<-t.leave
			w.Finish(0, haiku.FinishStop)
			return nil
		})})
	}
	if turns {
		next := 0 // requests are placed one after the other
		return haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
			next++
			return endpoints[next%poolServers].Model.Generate(ctx, w, req)
		}), func() {}, nil
	}
	p, err := pool.New(pool.Options{AffinityBytes: affinityBytes, Logger: slog.New(slog.DiscardHandler)}, endpoints...)
	if err != nil {
		return nil, nil, err
	}
	return p, p.Close, nil
}

// replay has requests come and go as the trace says.
func (f *fleet) replay(model haiku.Model, requests []haikutest.Visit) {
	for i := range requests {
		v := &requests[i]
		for len(f.under) > 0 && f.under[0].ends <= v.At {
			f.release()
		}
		left := make(chan struct{})
		go func() {
			defer close(left)
			_, _ = haiku.NewStream(context.Background(), model, promptOf(v)).Text()
		}()
		t := <-f.placed
		f.running[t.server]++
		f.loads = append(f.loads, f.running[t.server])
		found := f.caches[t.server].ask(v)
		t.left = left
		missed := max(v.PromptTokens-found*haikutest.PrefixTokens, 0)
		t.ends = v.At + time.Duration(missed)*poolPrompt + time.Duration(v.OutputTokens)*poolAnswer
		heap.Push(&f.under, t)
	}
	for len(f.under) > 0 {
		f.release()
	}
}

func (f *fleet) release() {
	t := heap.Pop(&f.under).(*ticket)
	close(t.leave)
	<-t.left
	f.running[t.server]--
}

func (f *fleet) found(requests []haikutest.Visit) float64 {
	total, found := 0, 0
	for i := range requests {
		total += len(requests[i].Prefix)
	}
	for _, c := range f.caches {
		found += c.found()
	}
	return float64(found) / float64(total)
}

// promptOf is a conversation whose opening begins with a visit's first blocks: the
// trace does not tell where a message ends.
func promptOf(v *haikutest.Visit) *haiku.Request {
	var b strings.Builder
	for _, id := range v.Prefix[:min(len(v.Prefix), 16)] {
		b.WriteString(strings.Repeat(fmt.Sprintf("%16d", id), 4*haikutest.PrefixTokens/16))
	}
	return &haiku.Request{Messages: []haiku.Message{{Role: haiku.RoleUser, Content: b.String()}}}
}
