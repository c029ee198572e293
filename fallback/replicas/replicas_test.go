package replicas

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/fallback"
)

func TestOneReplicasFailuresAreEverybodysWithinASecond(t *testing.T) {
	t.Parallel()
	o := scaled()
	o.OpenFor = time.Minute
	c := start(t, 3, o)
	require.True(t, c.all(fallback.Closed))
	c.replicas[1].idle.Store(true)
	c.replicas[2].idle.Store(true)
	c.replicas[0].sick.Store(true)
	eventually(t, func() bool { return c.replicas[0].Status().State == fallback.Open })
	begin := time.Now()
	eventually(t, func() bool { return c.all(fallback.Open) })
	took := time.Since(begin)
	t.Logf("all have followed %v after the first", took)
	require.Less(t, took, 10*time.Second, "a second, on a machine that is not busy")
}

func TestFailuresThatAreFewEachAreManyTogether(t *testing.T) {
	t.Parallel()
	o := scaled()
	o.OpenFor, o.Window = time.Minute, long
	o.Policies = []fallback.Policy{fallback.ErrorRate{Least: 30}}
	c := prepare(t)
	c.quiet = true
	for _, name := range []string{"A", "B", "C"} {
		c.join(name, o)
	}
	c.model.sick.Store(true)
	for range 12 {
		for _, r := range c.replicas {
			r.call()
		}
	}
	eventually(t, func() bool { return c.all(fallback.Open) }, "none of them has seen 30")
}

func TestWhoComesLaterSeesWhatIsLeft(t *testing.T) {
	t.Parallel()
	o := scaled()
	o.OpenFor = 5 * time.Second
	c := start(t, 1, o)
	a := c.replicas[0]
	a.sick.Store(true)
	eventually(t, func() bool { return a.Status().State == fallback.Open })
	a.sick.Store(false)
	eventually(t, func() bool { return a.Status().After < 3*time.Second })
	b := c.join("B", o)
	before := a.Status()
	seen := b.Status()
	require.Equal(t, fallback.Open, before.State)
	require.Equal(t, fallback.Open, seen.State)
	t.Logf("of %v A has %v left, and B %v", o.OpenFor, before.After, seen.After)
	require.GreaterOrEqual(t, seen.After, a.Status().After-100*time.Millisecond)
	require.LessOrEqual(t, seen.After, before.After+1500*time.Millisecond, "etcd counts in seconds")
}

func TestOneProbesAtATime(t *testing.T) {
	t.Parallel()
	c := start(t, 3, scaled())
	c.model.sick.Store(true)
	eventually(t, func() bool { return c.all(fallback.Open) })
	eventually(t, func() bool { return c.model.most.Load() > 0 }, "somebody probes")
	c.model.sick.Store(false)
	eventually(t, func() bool { return c.all(fallback.Closed) })
	require.Equal(t, int64(1), c.model.most.Load())
}

func TestAnOperatorsFlipReachesAllWithinASecond(t *testing.T) {
	t.Parallel()
	c := start(t, 3, scaled())
	const key = "haiku/switch/m"
	fastest := long
	flip := func(value string, done func(*replica) bool) {
		t.Helper()
		begin := time.Now()
		c.etcd.Etcdctl("put", key, value)
		eventually(t, func() bool { return c.everyone(done) })
		t.Logf("%s reached all %v after etcdctl was started", value, time.Since(begin))
		fastest = min(fastest, time.Since(begin))
	}
	open := func(r *replica) bool { return r.Status().State == fallback.Open && r.Status().Forced }
	closed := func(r *replica) bool { return r.Status().State == fallback.Closed }
	flip(`{"state":"open","forced":true,"by":"ann"}`, open)
	refused := c.replicas[0].refused.Load()
	eventually(t, func() bool { return c.replicas[0].refused.Load() > refused+200 })
	require.True(t, c.everyone(open), "for as long as it takes, and longer than OpenFor")
	flip(`{"state":"closed","forced":true}`, closed)
	c.model.sick.Store(true)
	refused = c.replicas[0].refused.Load()
	eventually(t, func() bool { return c.replicas[0].Status().Recent.Failed > 100 })
	require.True(t, c.everyone(closed), "nothing that is seen changes it")
	c.model.sick.Store(false)
	flip(`{"state":"open","forced":true}`, open)
	begin := time.Now()
	c.etcd.Etcdctl("del", key)
	eventually(t, func() bool { return c.everyone(closed) && !c.replicas[0].Status().Forced }, "nothing is forced any more")
	t.Logf("back by themselves %v after it was deleted", time.Since(begin))
	require.Less(t, fastest, time.Second)
}
