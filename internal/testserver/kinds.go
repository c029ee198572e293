package testserver

import (
	"os/exec"
	"testing"
)

// Redis starts a redis-server without persistence.
func Redis(t testing.TB, flags ...string) *Server {
	t.Helper()
	return start(t, kind{
		program: "redis-server", debian: "redis-server",
		ready: "Ready to accept connections",
		flags: func(s *Server, port string) []string {
			return []string{"--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "no", "--loglevel", "notice"}
		},
	}, flags)
}

// Etcd starts a cluster of one etcd, which does not wait for the disk. Its
// shortest lease lasts one second, since it holds elections fast.
func Etcd(t testing.TB, flags ...string) *Server {
	t.Helper()
	return start(t, kind{
		program: "etcd", debian: "etcd-server",
		ready: "serving client traffic",
		flags: func(s *Server, _ string) []string {
			client, peer := "http://"+s.Addr, "http://"+FreeAddr(s.t)
			return []string{
				"--data-dir", s.dir, "--logger", "zap", "--log-level", "info", "--unsafe-no-fsync", "--heartbeat-interval", "10", "--election-timeout", "100",
				"--listen-client-urls", client, "--advertise-client-urls", client,
				"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer,
			}
		},
	}, flags)
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
