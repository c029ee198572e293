package kserve

import (
	"crypto/x509"
	"net"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/intelliparadigm/haiku/upstream"
)

// secret is a token that may only travel over a secure connection.
type secret struct{ token }

func (secret) RequireTransportSecurity() bool { return true }

func TestTLS(t *testing.T) {
	certified := httptest.NewTLSServer(nil) // for its certificate
	defer certified.Close()
	s := &triton{answer: ok}
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&certified.TLS.Certificates[0])),
		grpc.ForceServerCodecV2(frames{}), grpc.UnknownServiceHandler(s.handle))
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(lis) }()
	defer func() { server.Stop(); <-served }()

	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())
	known := grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(roots, "example.com"))
	e, err := New(lis.Addr().String(), Options{Model: "llm"}, known, grpc.WithPerRPCCredentials(secret{}))
	require.NoError(t, err)
	defer e.Close()
	got, err := read(t.Context(), e, hello)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, got.texts)
	require.Equal(t, []string{"Bearer ours"}, s.heads[0].Get("authorization"))

	stranger := grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(x509.NewCertPool(), "example.com"))
	e, err = New(lis.Addr().String(), Options{Model: "llm"}, stranger)
	require.NoError(t, err)
	defer e.Close()
	_, err = read(t.Context(), e, hello)
	require.ErrorIs(t, err, upstream.ErrConnect, "a certificate that nobody vouches for")

	open := grpc.WithTransportCredentials(insecure.NewCredentials())
	_, err = New(lis.Addr().String(), Options{Model: "llm"}, open, grpc.WithPerRPCCredentials(secret{}))
	require.ErrorContains(t, err, "credentials require transport level security")
}
