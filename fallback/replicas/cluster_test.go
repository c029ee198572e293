// Package replicas tests what several replicas' breakers make of one Redis
// server and one etcd, as hosts put them together.
package replicas

import (
	"context"
	"flag"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/intelliparadigm/haiku/fallback"
	"github.com/intelliparadigm/haiku/fallback/etcd"
	"github.com/intelliparadigm/haiku/fallback/redis"
	"github.com/intelliparadigm/haiku/internal/testserver"
)

// TestMain lets many tests run at once, since they wait for servers rather than
// compute, and one goroutine of go-redis be: it looks once a second whether its
// client has been closed.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goredis.SetLogger(silent{})
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// silent is a logger of go-redis.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// long is for what must happen, however busy the machine is.
const long = 30 * time.Second

func eventually(t *testing.T, condition func() bool, what ...any) {
	t.Helper()
	require.Eventually(t, condition, long, 2*time.Millisecond, what...)
}

// cluster is a model, and replicas that ask it and share what they see of it.
type cluster struct {
	t           *testing.T
	redis, etcd *testserver.Server
	model       model
	replicas    []*replica
	quiet       bool // who joins has no traffic of its own
}

// model is what all replicas call.
type model struct {
	sick          atomic.Bool
	probing, most atomic.Int64 // probes under way, and the most there were
}

// replica is a process: it has clients of its own, over wires of its own.
type replica struct {
	*fallback.Breaker
	name        string
	redis, etcd *testserver.Proxy
	news        news
	model       *model
	idle        atomic.Bool // it has no traffic
	sick        atomic.Bool // the model fails for this one
	refused     atomic.Int64
}

// prepare starts the servers.
func prepare(t *testing.T) *cluster {
	return &cluster{t: t, redis: testserver.Redis(t), etcd: testserver.Etcd(t)}
}

// start starts servers and replicas with traffic.
func start(t *testing.T, replicas int, options fallback.BreakerOptions) *cluster {
	c := prepare(t)
	for i := range replicas {
		c.join(string(rune('A'+i)), options)
	}
	return c
}

// scaled are options whose times are a few hundredths of what they are in
// production, but for the patience with a busy machine.
func scaled() fallback.BreakerOptions {
	return fallback.BreakerOptions{
		Name: "m", OpenFor: 400 * time.Millisecond, ProbeFor: time.Second, Window: 2 * time.Second,
		Ramp: []float64{0.5}, RampAnswers: 2, Interval: 20 * time.Millisecond, Patience: 10 * time.Second,
		Policies: []fallback.Policy{fallback.ErrorRate{}, fallback.Consecutive{}},
	}
}

// join starts a replica, and waits until it knows what the cluster has decided.
func (c *cluster) join(name string, o fallback.BreakerOptions) *replica {
	t := c.t
	r := &replica{name: name, model: &c.model, redis: testserver.NewProxy(t, c.redis.Addr), etcd: testserver.NewProxy(t, c.etcd.Addr)}
	rc := goredis.NewUniversalClient(redis.ClientOptions(r.redis.Addr))
	ec, err := clientv3.New(etcd.ClientConfig(r.etcd.Addr))
	require.NoError(t, err)
	o.Counters, err = redis.New(rc, redis.Options{Deadline: o.Patience, MaxPause: 200 * time.Millisecond})
	require.NoError(t, err)
	o.Switch = etcd.New(ec, etcd.Options{Deadline: o.Patience, Beat: 100 * time.Millisecond})
	o.Replica, o.Logger, o.OnChange = name, slog.New(&r.news), r.news.change
	r.Breaker, err = fallback.NewBreaker(o)
	require.NoError(t, err)
	r.idle.Store(c.quiet)
	ctx, cancel := context.WithCancel(context.Background())
	var driven sync.WaitGroup
	driven.Go(func() { r.drive(ctx) })
	t.Cleanup(func() {
		cancel()
		driven.Wait()
		r.Close()
		require.NoError(t, rc.Close())
		require.NoError(t, ec.Close())
		if t.Failed() {
			t.Logf("replica %s: %+v\n%s", name, r.Status(), &r.news)
		}
	})
	<-r.Ready()
	c.replicas = append(c.replicas, r)
	return r
}

// drive calls the model again and again.
func (r *replica) drive(ctx context.Context) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if !r.idle.Load() {
			r.call()
		}
	}
}

// probeTakes is how long a probe is under way.
const probeTakes = 20 * time.Millisecond

func (r *replica) call() {
	call, ok := r.Allow()
	if !ok {
		r.refused.Add(1)
		return
	}
	if call.Probe() {
		now := r.model.probing.Add(1)
		for most := r.model.most.Load(); now > most && !r.model.most.CompareAndSwap(most, now); most = r.model.most.Load() {
		}
		<-time.After(probeTakes)
		r.model.probing.Add(-1)
	}
	outcome := fallback.Outcome{Class: fallback.OK, FirstToken: 10 * time.Millisecond}
	if r.model.sick.Load() || r.sick.Load() {
		outcome.Class = fallback.Failed
	}
	call.Done(outcome)
}

// all reports whether all replicas are in a state.
func (c *cluster) all(state fallback.State) bool {
	for _, r := range c.replicas {
		if r.Status().State != state {
			return false
		}
	}
	return true
}

// everyone reports whether a condition holds for all replicas.
func (c *cluster) everyone(condition func(*replica) bool) bool {
	for _, r := range c.replicas {
		if !condition(r) {
			return false
		}
	}
	return true
}
