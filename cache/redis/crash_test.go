package redis

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// groups is how many triples each writer overwrites in turn.
const groups = 50

// TestACrashLeavesNoHalfWrites kills a server that keeps an append-only file
// amid writes of three keys, and reads what it has after its restart.
func TestACrashLeavesNoHalfWrites(t *testing.T) {
	t.Parallel()
	srv := serve(t, "--appendonly", "yes", "--appendfsync", "no")
	rounds := 4
	if testing.Short() {
		rounds = 2
	}
	written := 0
	for round := range rounds {
		writers := make([]*Store, 3)
		var wrote atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for w := range writers {
			s := srv.open(patient)
			group.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					if s.SetAll(ctx, uint64(i), triple(fmt.Sprint(round, w, i%groups), number(i))) {
						wrote.Add(1)
					}
				}
			})
		}
		require.Eventually(t, func() bool { return wrote.Load() > 200 }, 20*time.Second, time.Millisecond)
		srv.Kill()
		cancel()
		group.Wait()
		srv.Restart()
		for w := range writers {
			written += countWhole(t, srv.open(patient), fmt.Sprint(round, w))
		}
	}
	require.Positive(t, written, "something survived the crashes")
}

func triple(group, value string) []Entry {
	return []Entry{entry(group+"/a", value+"a", "tag"), entry(group+"/b", value+"b"), entry(group+"/c", value+"c", "tag", group)}
}

// countWhole fails on groups of which some parts are missing.
func countWhole(t *testing.T, s *Store, writer string) (whole int) {
	for i := range groups {
		g := writer + " " + number(i)
		values := s.Get(t.Context(), g+"/a", g+"/b", g+"/c")
		if values[0] == nil && values[1] == nil && values[2] == nil {
			continue
		}
		v := strings.TrimSuffix(string(values[0]), "a")
		require.Equal(t, fmt.Sprintf("%sa %sb %sc", v, v, v), texts(values), g)
		whole++
	}
	return whole
}

// writerEnv holds the address of a server, for a copy of this program that
// writes to it until it is killed.
const writerEnv = "HAIKU_TEST_REDIS_WRITER"

func writeUntilKilled(addr string) {
	client := goredis.NewUniversalClient(ClientOptions(addr))
	s, padding := New(client, patient), strings.Repeat(".", 100_000)
	begin := time.Now()
	for i := 0; time.Since(begin) < 30*time.Second; i++ {
		s.SetAll(context.Background(), uint64(i), triple("writer "+number(i%groups), number(i)+padding))
	}
}

func TestAWriterThatIsKilledLeavesNoHalfWrites(t *testing.T) {
	t.Parallel()
	srv := serve(t)
	s, raw := srv.open(patient), srv.raw()
	for range 4 {
		require.NoError(t, raw.FlushAll(t.Context()).Err())
		writer := exec.Command(os.Args[0])
		writer.Env = append(os.Environ(), writerEnv+"="+srv.Addr)
		require.NoError(t, writer.Start())
		require.Eventually(t, func() bool { return get(t, s, "writer 5/b") != "-" }, 20*time.Second, time.Millisecond)
		require.NoError(t, writer.Process.Kill())
		require.Error(t, writer.Wait())
		require.GreaterOrEqual(t, countWhole(t, s, "writer"), 5)
	}
}
