package etcd

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/fallback"
	"github.com/intelliparadigm/haiku/internal/testserver"
)

// TestAnOperatorFlipsWithEtcdctl does what the package's documentation says.
func TestAnOperatorFlipsWithEtcdctl(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t)
	a, b := open(t, srv.Addr, patient), open(t, srv.Addr, patient)
	watchers := []*watching{watchName(t, a, "llama-70b"), watchName(t, b, "llama-70b")}
	all := func(want fallback.Setting) int64 {
		t.Helper()
		revision := int64(0)
		for _, w := range watchers {
			got := w.next()
			revision, got.Revision = got.Revision, 0
			require.Equal(t, want, got)
		}
		return revision
	}
	require.Zero(t, all(fallback.Setting{}))
	const key = "haiku/switch/llama-70b"

	begin := time.Now()
	srv.Etcdctl("put", key, `{"state":"open","forced":true,"by":"ann","reason":"driver update"}`)
	_ = all(fallback.Setting{State: fallback.Open, Forced: true, By: "ann", Reason: "driver update"})
	t.Logf("from the start of etcdctl until all have seen it: %v", time.Since(begin))

	srv.Etcdctl("put", key, `{"state":"open","wait":"5m"}`)
	revision := all(fallback.Setting{State: fallback.Open, Wait: 5 * time.Minute, Remaining: 5 * time.Minute})
	_ = put(t, a, "llama-70b", fallback.Setting{State: fallback.HalfOpen, Share: 0.1, By: "a", Revision: revision})
	_ = all(fallback.Setting{State: fallback.HalfOpen, Share: 0.1, By: "a"})
	require.Equal(t, key+"\n"+`{"state":"half-open","share":0.1,"by":"a"}`+"\n", srv.Etcdctl("get", key))

	srv.Etcdctl("put", key, `{"state":"closed"}`)
	require.NotZero(t, all(fallback.Setting{}))
	srv.Etcdctl("del", key)
	require.Zero(t, all(fallback.Setting{}), "as if it had never been set")
	_ = put(t, a, "llama-70b", fallback.Setting{State: fallback.Open})
	_ = all(fallback.Setting{State: fallback.Open})
}

func TestAnOperatorFreesAPermit(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t)
	a, b := open(t, srv.Addr, patient), open(t, srv.Addr, patient)
	release, err := a.Probe(t.Context(), "m", time.Minute)
	require.NoError(t, err)
	srv.Etcdctl("del", "haiku/probe/m")
	require.True(t, b.probed(t, "m"))
	require.NoError(t, release(t.Context()))
	require.False(t, a.probed(t, "m"))
}

func TestWhatIsNoSettingKeepsTheOneBefore(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t)
	log := &bytes.Buffer{}
	o := patient
	o.Logger = textLogger(log)
	s, late := open(t, srv.Addr, o), open(t, srv.Addr, patient)
	w := watchName(t, s, "m")
	require.Zero(t, w.next())
	srv.Etcdctl("put", "haiku/switch/m", "off!")
	mistake := w.next()
	require.Equal(t, fallback.Setting{Revision: mistake.Revision}, mistake)
	require.NotZero(t, mistake.Revision, "so that it can be replaced")
	good := put(t, s, "m", fallback.Setting{State: fallback.Open, Wait: time.Hour, Revision: mistake.Revision})
	require.Equal(t, good, w.next())
	for range 2 {
		srv.Etcdctl("put", "haiku/switch/m", `{"state":"open","force":true}`)
		mistake = w.next()
		require.Greater(t, mistake.Revision, good.Revision)
		want := good
		want.Revision = mistake.Revision
		require.Equal(t, want, mistake)
		require.Equal(t, want, now(t, late, "m"), "who comes late understands the same")
	}
	_ = put(t, late, "m", fallback.Setting{Revision: mistake.Revision})
	w.stop()
	require.Equal(t, 4, strings.Count(log.String(), "level=ERROR"), log) // the last looked back over two
	require.Contains(t, log.String(), "key=haiku/switch/m")
	require.Contains(t, log.String(), "force")

	for range maxMistakes {
		srv.Etcdctl("put", "haiku/switch/m", "off!")
	}
	require.Equal(t, fallback.Closed, now(t, late, "m").State)
	_ = put(t, late, "m", fallback.Setting{State: fallback.Open, Revision: now(t, late, "m").Revision})
	srv.Etcdctl("put", "haiku/switch/m", "off!")
	srv.Etcdctl("compact", revisionOf(now(t, late, "m")))
	require.Equal(t, fallback.Closed, now(t, late, "m").State, "etcd does not remember the one before")
}
