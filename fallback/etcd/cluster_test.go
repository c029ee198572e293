package etcd

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/intelliparadigm/haiku/fallback"
	"github.com/intelliparadigm/haiku/internal/testserver"
)

// leader returns the member that leads.
func leader(t *testing.T, client *clientv3.Client, members []*testserver.Server) *testserver.Server {
	t.Helper()
	for _, m := range members {
		status, err := client.Status(t.Context(), m.Addr)
		require.NoError(t, err)
		if status.Leader == status.Header.MemberId {
			return m
		}
	}
	t.Fatal("nobody leads")
	return nil
}

// TestALostLeaderIsNotALostCluster kills the leader of three, and then one of
// the two that are left.
func TestALostLeaderIsNotALostCluster(t *testing.T) {
	t.Parallel()
	members := testserver.EtcdCluster(t, 3)
	var addresses []string
	for _, m := range members {
		addresses = append(addresses, m.Addr)
	}
	client, err := clientv3.New(ClientConfig(addresses...))
	require.NoError(t, err)
	defer client.Close()
	s := New(client, brisk)
	set := settle(t, s)
	release, err := s.Probe(t.Context(), "m", time.Minute)
	require.NoError(t, err)

	lost := leader(t, client, members)
	lost.Kill()
	begin := time.Now()
	set = replace(t, s, fallback.Setting{State: fallback.HalfOpen, Share: 0.5, Revision: set.Revision})
	t.Logf("a setting was replaced %v after the leader was lost", time.Since(begin))
	require.Eventually(t, func() bool {
		_, err := s.Probe(t.Context(), "m", time.Minute)
		return errors.Is(err, fallback.ErrTaken)
	}, long, 5*time.Millisecond, "the permit is still with who has it")
	require.Eventually(t, func() bool { return release(t.Context()) == nil }, long, 5*time.Millisecond)

	w := &watching{}
	require.Eventually(t, func() bool {
		w = watchName(t, s, "m")
		i := <-w.items
		return i.err == nil && i.Setting == set
	}, long, 5*time.Millisecond)
	for _, m := range members {
		if m != lost {
			m.Kill()
			break
		}
	}
	require.Error(t, w.failure(), "one of three decides nothing")
	_, err = s.Set(t.Context(), "m", set)
	require.Error(t, err)

	lost.Restart()
	_ = settle(t, s)
}

// replace sets until it is carried out, whatever its errors say.
func replace(t *testing.T, s *Switch, set fallback.Setting) (present fallback.Setting) {
	t.Helper()
	require.Eventually(t, func() bool {
		if done, err := s.Set(t.Context(), "m", set); err == nil {
			present = done
			return true
		}
		for seen, err := range s.Watch(t.Context(), "m") {
			present = seen
			return err == nil && seen.State == set.State
		}
		return false
	}, long, 5*time.Millisecond)
	return present
}
