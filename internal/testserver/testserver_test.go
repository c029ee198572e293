package testserver

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo serves whatever it is sent.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-ended })
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

func say(t *testing.T, c net.Conn, text string) {
	_, err := io.WriteString(c, text)
	require.NoError(t, err)
}

func hear(c net.Conn, n int, within time.Duration) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(within))
	text := make([]byte, n)
	n, err := io.ReadFull(c, text)
	return string(text[:n]), err
}

func TestAPartitionHoldsAndACutCloses(t *testing.T) {
	p := NewProxy(t, echo(t))
	c, err := net.Dial("tcp", p.Addr)
	require.NoError(t, err)
	defer c.Close()
	say(t, c, "a")
	got, err := hear(c, 1, time.Minute)
	require.NoError(t, err)
	require.Equal(t, "a", got)

	p.Partition()
	say(t, c, "b")
	_, err = hear(c, 1, 20*time.Millisecond)
	require.Error(t, err)
	p.Heal()
	got, err = hear(c, 1, time.Minute)
	require.NoError(t, err)
	require.Equal(t, "b", got, "nothing was lost")

	p.Cut()
	_, err = hear(c, 1, time.Minute)
	require.ErrorIs(t, err, io.EOF)
	p.Heal()
	again, err := net.Dial("tcp", p.Addr)
	require.NoError(t, err)
	defer again.Close()
	say(t, again, "c")
	got, err = hear(again, 1, time.Minute)
	require.NoError(t, err)
	require.Equal(t, "c", got)
}

func TestServersServeAndComeBack(t *testing.T) {
	for name, s := range map[string]*Server{"redis": Redis(t), "etcd": Etcd(t)} {
		reached := func() bool {
			c, err := net.DialTimeout("tcp", s.Addr, time.Second)
			if err == nil {
				_ = c.Close()
			}
			return err == nil
		}
		require.True(t, reached(), name)
		s.Kill()
		require.False(t, reached(), name)
		s.Restart()
		require.True(t, reached(), name)
	}
}
