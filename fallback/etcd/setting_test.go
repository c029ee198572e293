package etcd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku/fallback"
)

func TestASettingIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := fallback.Setting{
			State: fallback.State(rapid.IntRange(0, 2).Draw(t, "state")), Forced: rapid.Bool().Draw(t, "forced"),
			Share: rapid.Float64Range(0, 1).Draw(t, "share"), Wait: time.Duration(rapid.Int64Range(0, 1<<50).Draw(t, "wait")),
			By: rapid.String().Draw(t, "by"), Reason: rapid.String().Draw(t, "reason"),
		}
		lease := clientv3.LeaseID(rapid.Int64Min(0).Draw(t, "lease"))
		value, err := encode(want, lease)
		require.NoError(t, err)
		got, gotLease, err := decode([]byte(value))
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, lease, gotLease)
	})
}

func TestHowASettingLooks(t *testing.T) {
	value, err := encode(fallback.Setting{State: fallback.Open, Wait: 5 * time.Minute, By: "pod-7", Reason: "slow"}, 0x694d8a1b2c3d4e5f)
	require.NoError(t, err)
	require.Equal(t, `{"state":"open","wait":"5m0s","lease":"694d8a1b2c3d4e5f","by":"pod-7","reason":"slow"}`, value)
}

func TestWhatIsNoSetting(t *testing.T) {
	for _, text := range []string{
		``, `{`, `null`, `"open"`, `{}`, `{"forced":true}`, `{"state":"opened"}`, `{"State":"open"}`, `{"state":1}`,
		`{"state":"open","force":true}`, `{"state":"open","state":"closed"}`, `{"state":"open"} x`,
		`{"state":"half-open","share":1.5}`, `{"state":"half-open","share":-1}`, `{"state":"open","wait":"5"}`,
		`{"state":"open","wait":"-5m"}`, `{"state":"open","wait":300}`, `{"state":"open","lease":"xyz"}`,
	} {
		_, _, err := decode([]byte(text))
		require.ErrorIs(t, err, ErrInvalid, text)
	}
}

func TestWhatALeaseSaysOfAWait(t *testing.T) {
	for _, tt := range []struct {
		wait              time.Duration
		granted, remained int64
		want              time.Duration
	}{
		{300 * time.Second, 300, 300, 300 * time.Second},
		{300 * time.Second, 300, 299, 300 * time.Second}, // anything up to a second has passed
		{300 * time.Second, 300, 249, 250 * time.Second},
		{300 * time.Second, 300, 0, time.Second},
		{300 * time.Second, 300, -1, 0},
		{300 * time.Second, 300, 305, 300 * time.Second}, // a new leader gives leases some more
		{500 * time.Millisecond, 2, 1, 500 * time.Millisecond},
		{500 * time.Millisecond, 2, 0, 0}, // the least that etcd grants is more than the wait
	} {
		require.Equal(t, tt.want, left(tt.wait, tt.granted, tt.remained), "%+v", tt)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"state":"open","forced":true,"share":0.5,"wait":"5m","lease":"1f","by":"a","reason":"b"}`))
	f.Add([]byte(`{"state":"half-open","share":1e-9}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		set, lease, err := decode(value)
		if err != nil {
			return
		}
		again, err := encode(set, lease)
		require.NoError(t, err)
		got, gotLease, err := decode([]byte(again))
		require.NoError(t, err)
		require.Equal(t, set, got)
		require.Equal(t, lease, gotLease)
	})
}
