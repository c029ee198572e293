package testserver

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
)

// Redis starts a redis-server without persistence.
func Redis(t testing.TB, flags ...string) *Server {
	t.Helper()
	k := kind{program: "redis-server", debian: "redis-server", ready: "Ready to accept connections"}
	return start(t, k, 1, func(all []*Server) [][]string {
		s := all[0]
		_, port, _ := net.SplitHostPort(s.Addr)
		return [][]string{{"--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "no", "--loglevel", "notice"}}
	}, flags)[0]
}

// Etcd starts a cluster of one etcd, which does not wait for the disk. Its
// shortest lease lasts one second, since it holds elections fast.
func Etcd(t testing.TB, flags ...string) *Server {
	t.Helper()
	return start(t, etcd(), 1, etcdFlags("10", "100"), flags)[0]
}

// EtcdCluster starts a cluster of several. Elections take half a second or more, so
// that a busy machine does not lead to some.
func EtcdCluster(t testing.TB, members int) []*Server {
	t.Helper()
	return start(t, etcd(), members, etcdFlags("40", "400"), nil)
}

func etcd() kind {
	return kind{program: "etcd", debian: "etcd-server", ready: "serving client traffic"}
}

func etcdFlags(heartbeatMillis, electionMillis string) func([]*Server) [][]string {
	return func(all []*Server) (flags [][]string) {
		var peers, cluster []string
		for i, s := range all {
			peers = append(peers, "http://"+freeAddr(s.t))
			cluster = append(cluster, fmt.Sprintf("m%d=%s", i, peers[i]))
		}
		for i, s := range all {
			client := "http://" + s.Addr
			flags = append(flags, []string{
				"--name", fmt.Sprint("m", i), "--data-dir", s.dir, "--logger", "zap", "--log-level", "info", "--unsafe-no-fsync",
				"--heartbeat-interval", heartbeatMillis, "--election-timeout", electionMillis,
				"--listen-client-urls", client, "--advertise-client-urls", client,
				"--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i], "--initial-cluster", strings.Join(cluster, ","),
			})
		}
		return flags
	}
}

// Etcdctl runs etcdctl against the server and returns what it prints.
func (s *Server) Etcdctl(args ...string) string {
	s.t.Helper()
	path, err := exec.LookPath("etcdctl")
	if err != nil {
		s.t.Skip("etcdctl is not on PATH (Debian: etcd-client)")
	}
	cmd := exec.Command(path, append([]string{"--endpoints", s.Addr}, args...)...)
	cmd.Env = append(cmd.Environ(), "ETCDCTL_API=3")
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("etcdctl %q: %v\n%s", args, err, out)
	}
	return string(out)
}
