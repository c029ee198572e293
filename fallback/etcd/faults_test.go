package etcd

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/fallback"
	"github.com/intelliparadigm/haiku/internal/testserver"
)

func revisionOf(s fallback.Setting) string { return strconv.FormatInt(s.Revision, 10) }

// fault is a way to lose a server, and to have it back.
type fault struct {
	name       string
	lose, mend func(*testserver.Server, *testserver.Proxy)
}

func faults() []fault {
	return []fault{
		{"killed", func(s *testserver.Server, _ *testserver.Proxy) { s.Kill() }, func(s *testserver.Server, _ *testserver.Proxy) { s.Restart() }},
		{"stopped", func(s *testserver.Server, _ *testserver.Proxy) { s.Pause() }, func(s *testserver.Server, _ *testserver.Proxy) { s.Resume() }},
		{"partitioned", func(_ *testserver.Server, p *testserver.Proxy) { p.Partition() }, func(_ *testserver.Server, p *testserver.Proxy) { p.Heal() }},
		{"cut off", func(_ *testserver.Server, p *testserver.Proxy) { p.Cut() }, func(_ *testserver.Server, p *testserver.Proxy) { p.Heal() }},
	}
}

func TestAServerThatIsLostIsAnErrorSoon(t *testing.T) {
	t.Parallel()
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			srv := testserver.Etcd(t)
			proxy := testserver.NewProxy(t, srv.Addr)
			s := open(t, proxy.Addr, brisk)
			set := settle(t, s)
			w := watchName(t, s, "m")
			require.Equal(t, set, w.next())

			f.lose(srv, proxy)
			begin := time.Now()
			require.Error(t, w.failure())
			t.Logf("the watch ended after %v", time.Since(begin))
			for _, operation := range []func() error{
				func() error { _, err := s.Set(t.Context(), "m", set); return err },
				func() error { _, err := s.Probe(t.Context(), "m", time.Minute); return err },
				func() error { return watchName(t, s, "m").failure() },
			} {
				begin = time.Now()
				require.Error(t, operation())
				require.Less(t, time.Since(begin), 10*brisk.Deadline)
			}

			f.mend(srv, proxy)
			begin = time.Now()
			back := settle(t, s)
			t.Logf("it was back after %v", time.Since(begin))
			require.Equal(t, fallback.Open, back.State)
			require.Eventually(t, func() bool { return s.probed(t, "another") }, long, 5*time.Millisecond)
		})
	}
}

// settle makes it open, and returns the setting.
func settle(t *testing.T, s *Switch) (set fallback.Setting) {
	t.Helper()
	require.Eventually(t, func() bool {
		for present, err := range s.Watch(t.Context(), "m") {
			if err != nil {
				return false
			}
			set = present
			break
		}
		var err error
		set, err = s.Set(t.Context(), "m", fallback.Setting{State: fallback.Open, Revision: set.Revision})
		return err == nil
	}, long, 5*time.Millisecond)
	return set
}

// TestAWatchGoesOnOverACut loses the connection, and not the patience.
func TestAWatchGoesOnOverACut(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t)
	proxy := testserver.NewProxy(t, srv.Addr)
	o := patient
	o.Beat = time.Hour
	w, s := watchName(t, open(t, proxy.Addr, o), "m"), open(t, srv.Addr, patient)
	require.Zero(t, w.next())
	set := fallback.Setting{State: fallback.Open}
	for range 3 {
		proxy.Cut()
		for range 3 {
			set = put(t, s, "m", set)
		}
		proxy.Heal()
		for i := range int64(3) {
			require.Equal(t, set.Revision-2+i, w.next().Revision, "none is missed")
		}
	}
}

func TestWhatWasCompactedAwayIsSkipped(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t)
	proxy := testserver.NewProxy(t, srv.Addr)
	o := patient
	o.Beat = time.Hour
	w, s := watchName(t, open(t, proxy.Addr, o), "m"), open(t, srv.Addr, patient)
	require.Zero(t, w.next())
	proxy.Cut()
	set := fallback.Setting{State: fallback.Open}
	for range 5 {
		set = put(t, s, "m", set)
	}
	_, err := s.client.Compact(t.Context(), set.Revision)
	require.NoError(t, err)
	last := put(t, s, "m", fallback.Setting{State: fallback.HalfOpen, Revision: set.Revision})
	proxy.Heal()
	require.Equal(t, last, w.next())
	last = put(t, s, "m", fallback.Setting{Revision: last.Revision})
	require.Equal(t, last, w.next())
}

func TestAWatchThatHearsNothingOfChangesEnds(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t)
	s := open(t, srv.Addr, patient)
	set := put(t, s, "m", fallback.Setting{State: fallback.Open})
	w := &watch{Switch: s, key: s.settingKey("m"), last: set, yielded: true}
	outOfPatience := func() { w.suspects = w.suspects.Add(-patient.Deadline) }
	require.NoError(t, w.check(t.Context()))
	require.Zero(t, w.suspects)
	set = put(t, s, "m", fallback.Setting{Revision: set.Revision})
	for range 3 {
		require.NoError(t, w.check(t.Context()), "it may be on its way")
	}
	outOfPatience()
	require.ErrorIs(t, w.check(t.Context()), errBehind)

	w.last = set
	require.NoError(t, w.check(t.Context()))
	require.Zero(t, w.suspects)
	_, err := s.client.Delete(t.Context(), w.key)
	require.NoError(t, err)
	require.NoError(t, w.check(t.Context()))
	outOfPatience()
	require.ErrorIs(t, w.check(t.Context()), errBehind)
}

func TestAWatchEndsWithItsCallerWithoutAnError(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t)
	s := open(t, srv.Addr, patient)
	for set, err := range s.Watch(t.Context(), "m") {
		require.NoError(t, err)
		require.Zero(t, set)
		break
	}
	w := watchName(t, s, "m")
	require.Zero(t, w.next())
	w.cancel()
	_, more := <-w.items
	require.False(t, more)

	srv.Pause()
	w = watchName(t, s, "m")
	w.cancel()
	_, more = <-w.items
	require.False(t, more)
}
