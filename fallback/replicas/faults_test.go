package replicas

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/fallback"
	"github.com/intelliparadigm/haiku/internal/testserver"
)

// wire is a server with what lies between it and each replica.
type wire struct {
	server  *testserver.Server
	proxies []*testserver.Proxy
}

func (w wire) each(do func(*testserver.Proxy)) {
	for _, p := range w.proxies {
		do(p)
	}
}

// fault is a way to lose a server, and to have it back.
type fault struct {
	name       string
	lose, mend func(wire)
}

func faults() []fault {
	return []fault{
		{"killed", func(w wire) { w.server.Kill() }, func(w wire) { w.server.Restart() }},
		{"stopped", func(w wire) { w.server.Pause() }, func(w wire) { w.server.Resume() }},
		{"partitioned", func(w wire) { w.each((*testserver.Proxy).Partition) }, func(w wire) { w.each((*testserver.Proxy).Heal) }},
		{"cut off", func(w wire) { w.each((*testserver.Proxy).Cut) }, func(w wire) { w.each((*testserver.Proxy).Heal) }},
	}
}

func (c *cluster) wire(what string) wire {
	w := wire{server: c.redis}
	for _, r := range c.replicas {
		p := r.redis
		if what == "switch" {
			w.server, p = c.etcd, r.etcd
		}
		w.proxies = append(w.proxies, p)
	}
	return w
}

const (
	alone  = "breaker judges alone"
	shares = "breaker shares again"
)

// TestReplicasSurviveTheLossOfWhatTheyShare loses a server while all is well,
// lets the model fall sick and get well without it, and has it back.
func TestReplicasSurviveTheLossOfWhatTheyShare(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"counters", "switch"} {
		for _, f := range faults() {
			t.Run(what+" "+f.name, func(t *testing.T) {
				t.Parallel()
				o := scaled()
				// Longer than etcd takes to tell of a change and than it counts in.
				o.OpenFor, o.Patience = time.Second, time.Second
				c := start(t, 3, o)
				require.True(t, c.all(fallback.Closed))
				f.lose(c.wire(what))
				eventually(t, func() bool { return c.everyone(func(r *replica) bool { return r.news.said(alone, what) == 1 }) }, "all say that they are alone")
				require.True(t, c.all(fallback.Closed), "a lost server is no reason to leave a model alone")

				c.fallSickAndGetWell()

				f.mend(c.wire(what))
				eventually(t, func() bool { return c.everyone(func(r *replica) bool { return r.news.said(shares, what) == 1 }) }, "all say that they are not")
				eventually(t, func() bool {
					return c.all(fallback.Closed) && c.everyone(func(r *replica) bool { return !r.Status().Alone })
				})
				c.fallSickAndGetWell()
				c.checkCalm(what, 2)
			})
		}
	}
}

// fallSickAndGetWell lets all replicas find the model sick, and well.
func (c *cluster) fallSickAndGetWell() {
	c.t.Helper()
	c.model.sick.Store(true)
	eventually(c.t, func() bool { return c.all(fallback.Open) })
	c.model.sick.Store(false)
	eventually(c.t, func() bool { return c.all(fallback.Closed) })
}

// checkCalm checks what the replicas told of a model that was sick some times:
// each outage once, and no change too many.
func (c *cluster) checkCalm(what string, times int) {
	for _, r := range c.replicas {
		eventually(c.t, func() bool { return r.news.last() == fallback.Closed })
		require.Equal(c.t, 1, r.news.said(alone, what), "%s: %v", r.name, &r.news)
		require.Equal(c.t, 1, r.news.said(shares, what), "%s: %v", r.name, &r.news)
		all, opened := r.news.moves(fallback.Open)
		require.Equal(c.t, times, opened, "%s: %v", r.name, &r.news)
		// closed → open → half-open, probing → half-open, ramp → closed
		require.LessOrEqual(c.t, all, 4*times, "%s: %v", r.name, &r.news)
	}
}

// TestOneReplicaThatIsPartitionedComesBack keeps one away from both servers
// while the others leave the model alone.
func TestOneReplicaThatIsPartitionedComesBack(t *testing.T) {
	t.Parallel()
	o := scaled()
	o.OpenFor, o.Patience = long*10, time.Second
	c := start(t, 3, o)
	lost := c.replicas[2]
	lost.redis.Partition()
	lost.etcd.Partition()
	eventually(t, func() bool { return lost.news.said(alone) == 2 })
	c.replicas[0].sick.Store(true)
	eventually(t, func() bool {
		return c.replicas[0].Status().State == fallback.Open && c.replicas[1].Status().State == fallback.Open
	})
	require.Equal(t, fallback.Closed, lost.Status().State, "it sees nothing wrong")
	lost.redis.Heal()
	lost.etcd.Heal()
	eventually(t, func() bool { return c.all(fallback.Open) })
	eventually(t, func() bool { return lost.news.said(shares) == 2 })
	eventually(t, func() bool { return lost.news.last() == fallback.Open })
	all, _ := lost.news.moves(fallback.Open)
	require.Equal(t, 1, all)
}
