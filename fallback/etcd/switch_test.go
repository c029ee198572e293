package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku/fallback"
	"github.com/intelliparadigm/haiku/internal/testserver"
)

func TestASettingReachesEveryWatcherWithinASecond(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t)
	var watchers []*watching
	for range 3 {
		watchers = append(watchers, watchName(t, open(t, srv.Addr, patient), "m"))
	}
	for _, w := range watchers {
		require.Equal(t, fallback.Setting{}, w.next(), "never set")
	}
	s := open(t, srv.Addr, patient)
	set := fallback.Setting{}
	var times []time.Duration
	for i := range 20 {
		set.State, set.Wait, set.By, set.Reason = fallback.State(i%3), time.Duration(i)*time.Minute, "a", "because"
		begin := time.Now()
		set = put(t, s, "m", set)
		for _, w := range watchers {
			require.Equal(t, set, w.next())
		}
		times = append(times, time.Since(begin))
	}
	slices.Sort(times)
	t.Logf("set and seen by all in %v, and in %v at most", times[len(times)/2], times[len(times)-1])
	require.Less(t, times[len(times)/2], time.Second)
	require.Equal(t, set, now(t, s, "m"))
	require.Equal(t, fallback.Setting{}, now(t, s, "another"))
}

func TestOnlyWhoHasSeenASettingReplacesIt(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t)
	a, b := open(t, srv.Addr, patient), open(t, srv.Addr, patient)
	first := put(t, a, "m", fallback.Setting{State: fallback.Open, Wait: time.Minute})
	require.Equal(t, time.Minute, first.Remaining)
	_, err := b.Set(t.Context(), "m", fallback.Setting{})
	require.ErrorIs(t, err, fallback.ErrChanged)
	second := put(t, b, "m", fallback.Setting{State: fallback.HalfOpen, Share: 0.25, Revision: first.Revision})
	require.Greater(t, second.Revision, first.Revision)
	_, err = a.Set(t.Context(), "m", fallback.Setting{Wait: time.Hour, Revision: first.Revision})
	require.ErrorIs(t, err, fallback.ErrChanged)
	leases, err := a.client.Leases(t.Context())
	require.NoError(t, err)
	require.Len(t, leases.Leases, 1, "the lease of a setting that lost is given back")
}

func TestWhatNobodyWouldUnderstandIsNotSet(t *testing.T) {
	s := open(t, "127.0.0.1:1", patient)
	for _, set := range []fallback.Setting{
		{State: 3}, {Share: -0.1}, {Share: 1.1}, {Share: math.NaN()}, {Wait: -1},
	} {
		_, err := s.Set(t.Context(), "m", set)
		require.ErrorIs(t, err, ErrInvalid, "%+v", set)
	}
	_, err := s.Probe(t.Context(), "m", 0)
	require.ErrorIs(t, err, ErrInvalid)
}

func TestWhatIsSaidToPeopleIsMended(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t)
	s := open(t, srv.Addr, patient)
	set := put(t, s, "m", fallback.Setting{By: "a\xffb", Reason: strings.Repeat("語", 1000)})
	require.Equal(t, "ab", set.By)
	require.Equal(t, strings.Repeat("語", textBytes/3), set.Reason)
	require.Equal(t, set, now(t, s, "m"))
}

// TestRemainingIsWhatIsLeft reads a wait again and again until it is over, and
// compares with this machine's own monotonic clock, since here the server is on
// the same one.
func TestRemainingIsWhatIsLeft(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t)
	a, b := open(t, srv.Addr, patient), open(t, srv.Addr, patient)
	const wait = 1500 * time.Millisecond
	before := time.Now()
	_ = put(t, a, "m", fallback.Setting{State: fallback.Open, Wait: wait})
	after := time.Now()
	require.Eventually(t, func() bool {
		asked := time.Now()
		set := now(t, b, "m")
		require.LessOrEqual(t, set.Remaining, max(0, wait-asked.Sub(after))+time.Second, "not more than a second too long")
		require.GreaterOrEqual(t, set.Remaining, wait-time.Since(before), "never too short")
		require.Equal(t, wait, set.Wait)
		return set.Remaining == 0
	}, long, 50*time.Millisecond)
}

func TestARestartBeginsTheWaitAnewAtMost(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t)
	s := open(t, srv.Addr, patient)
	_ = put(t, s, "m", fallback.Setting{State: fallback.Open, Wait: time.Hour})
	srv.Kill()
	srv.Restart()
	set := now(t, s, "m")
	require.Equal(t, fallback.Open, set.State)
	require.InDelta(t, time.Hour, set.Remaining, float64(time.Minute))
	require.LessOrEqual(t, set.Remaining, time.Hour)
}

func TestOneInTheClusterProbes(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t)
	var replicas []*Switch
	for range 5 {
		replicas = append(replicas, open(t, srv.Addr, patient))
	}
	release := race(t, replicas)
	_, err := replicas[0].Probe(t.Context(), "m", time.Minute)
	require.ErrorIs(t, err, fallback.ErrTaken)
	other, err := replicas[0].Probe(t.Context(), "another", time.Minute)
	require.NoError(t, err)
	require.NoError(t, release(t.Context()))
	require.NoError(t, release(t.Context()), "twice is once")
	again := race(t, replicas)
	require.NoError(t, again(t.Context()))
	require.NoError(t, other(t.Context()))
	leases, err := replicas[0].client.Leases(t.Context())
	require.NoError(t, err)
	require.Empty(t, leases.Leases, "nothing is left, of those that lost either")
}

// race lets all ask at once and returns the release of the only one that wins.
func race(t *testing.T, replicas []*Switch) (release func(context.Context) error) {
	var won atomic.Int64
	var group sync.WaitGroup
	for _, s := range replicas {
		group.Go(func() {
			r, err := s.Probe(t.Context(), "m", time.Minute)
			switch {
			case err == nil:
				won.Add(1)
				release = r
			case !errors.Is(err, fallback.ErrTaken):
				t.Error(err)
			}
		})
	}
	group.Wait()
	require.Equal(t, int64(1), won.Load())
	return release
}

func TestThePermitOfADeadReplicaComesBack(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t)
	b := open(t, srv.Addr, patient)
	dies, err := clientv3.New(ClientConfig(srv.Addr))
	require.NoError(t, err)
	_, err = New(dies, patient).Probe(t.Context(), "m", time.Second)
	require.NoError(t, err)
	require.NoError(t, dies.Close())
	_, err = b.Probe(t.Context(), "m", time.Second)
	require.ErrorIs(t, err, fallback.ErrTaken)
	var mine func(context.Context) error
	require.Eventually(t, func() bool {
		mine, err = b.Probe(t.Context(), "m", time.Minute)
		return err == nil
	}, long, 20*time.Millisecond)
	require.NoError(t, mine(t.Context()))
}

func TestAReleaseAfterTheEndIsNoError(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t)
	a, b := open(t, srv.Addr, patient), open(t, srv.Addr, patient)
	late, err := a.Probe(t.Context(), "m", time.Second)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return b.probed(t, "m") }, long, 20*time.Millisecond)
	require.NoError(t, late(t.Context()))
	require.False(t, a.probed(t, "m"), "the other's permit stands")
}

// probed takes the permit for a minute, if it is free.
func (s *Switch) probed(t *testing.T, name string) bool {
	_, err := s.Probe(t.Context(), name, time.Minute)
	return err == nil
}

// TestAllWatchersSeeAllChangesInOrder lets replicas and operators set what they
// like, and compares what is set and seen with a list.
func TestAllWatchersSeeAllChangesInOrder(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t)
	replicas := []*Switch{open(t, srv.Addr, patient), open(t, srv.Addr, patient), open(t, srv.Addr, patient)}
	operator := dial(t, srv.Addr)
	checks := 0
	rapid.Check(t, func(rt *rapid.T) {
		checks++
		name := fmt.Sprint("m", checks)
		key := replicas[0].settingKey(name)
		revisions := []int64{0}
		var changes []fallback.Setting
		present := fallback.Setting{}
		changed := func(to fallback.Setting) {
			present = to
			changes = append(changes, to)
			revisions = append(revisions, to.Revision)
		}
		var watchers []*watching
		rt.Repeat(map[string]func(*rapid.T){
			"set": func(rt *rapid.T) {
				set := fallback.Setting{State: fallback.State(rapid.IntRange(0, 2).Draw(rt, "state")), Share: rapid.Float64Range(0, 1).Draw(rt, "share")}
				set.Revision = rapid.SampledFrom(revisions).Draw(rt, "revision")
				got, err := rapid.SampledFrom(replicas).Draw(rt, "replica").Set(rt.Context(), name, set)
				if set.Revision != present.Revision {
					require.ErrorIs(rt, err, fallback.ErrChanged)
					return
				}
				require.NoError(rt, err)
				set.Revision = got.Revision
				require.Equal(rt, set, got)
				changed(set)
			},
			"an operator sets": func(rt *rapid.T) {
				r, err := operator.Put(rt.Context(), key, `{"state":"open","forced":true}`)
				require.NoError(rt, err)
				changed(fallback.Setting{State: fallback.Open, Forced: true, Revision: r.Header.Revision})
			},
			"an operator deletes": func(rt *rapid.T) {
				r, err := operator.Delete(rt.Context(), key)
				require.NoError(rt, err)
				if r.Deleted > 0 {
					changed(fallback.Setting{})
				}
			},
			"begin to watch": func(rt *rapid.T) {
				if len(watchers) == 3 {
					return
				}
				w := watchName(t, rapid.SampledFrom(replicas).Draw(rt, "replica"), name)
				require.Equal(rt, present, w.next())
				w.since = len(changes)
				watchers = append(watchers, w)
			},
		})
		for _, w := range watchers {
			for _, want := range changes[w.since:] {
				require.Equal(rt, want, w.next())
			}
		}
	})
}
