package redisclient

import (
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type wrapper struct{ goredis.UniversalClient }

func TestWhichClientsHeedDeadlines(t *testing.T) {
	deaf := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1"})
	defer deaf.Close()
	require.False(t, HeedsDeadlines(deaf))
	require.True(t, HeedsDeadlines(wrapper{deaf}), "a type of the host's own is its own affair")

	one := goredis.NewUniversalClient(Options("127.0.0.1:1"))
	defer one.Close()
	require.IsType(t, &goredis.Client{}, one)
	require.True(t, HeedsDeadlines(one))

	several := goredis.NewUniversalClient(Options("127.0.0.1:1", "127.0.0.1:2"))
	defer several.Close()
	require.IsType(t, &goredis.ClusterClient{}, several)
	require.True(t, HeedsDeadlines(several))
}
