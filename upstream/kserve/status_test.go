package kserve

import (
	"encoding/binary"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/upstream"
)

func TestEachStatusHasItsPlace(t *testing.T) {
	for code, want := range map[codes.Code]struct {
		wire   *haiku.Error
		status int
	}{
		codes.Canceled:           {upstream.ErrFailed, http.StatusBadGateway},
		codes.Unknown:            {upstream.ErrFailed, http.StatusBadGateway},
		codes.InvalidArgument:    {haiku.ErrInvalidRequest, http.StatusBadRequest},
		codes.DeadlineExceeded:   {haiku.ErrTimeout, http.StatusGatewayTimeout},
		codes.NotFound:           {upstream.ErrFailed, http.StatusBadGateway},
		codes.AlreadyExists:      {upstream.ErrFailed, http.StatusBadGateway},
		codes.PermissionDenied:   {upstream.ErrFailed, http.StatusBadGateway},
		codes.ResourceExhausted:  {haiku.ErrRateLimited, http.StatusTooManyRequests},
		codes.FailedPrecondition: {upstream.ErrFailed, http.StatusBadGateway},
		codes.Aborted:            {upstream.ErrFailed, http.StatusBadGateway},
		codes.OutOfRange:         {haiku.ErrInvalidRequest, http.StatusBadRequest},
		codes.Unimplemented:      {upstream.ErrFailed, http.StatusBadGateway},
		codes.Internal:           {upstream.ErrFailed, http.StatusBadGateway},
		codes.Unavailable:        {haiku.ErrOverloaded, http.StatusServiceUnavailable},
		codes.DataLoss:           {upstream.ErrFailed, http.StatusBadGateway},
		codes.Unauthenticated:    {upstream.ErrFailed, http.StatusBadGateway},
	} {
		s := &triton{answer: func(*call) error { return status.Error(code, "/secret/path: it is so") }}
		_, err := read(t.Context(), s.start(t, Options{Retries: -1}), hello)
		require.ErrorIs(t, err, want.wire, "%v", code)
		wire := haiku.ErrorFrom(err)
		require.Equal(t, want.status, wire.Status, "%v", code)
		require.NotContains(t, wire.Message, "secret")
		var told *StatusError
		require.ErrorAs(t, err, &told)
		require.Equal(t, code, told.Code)
		require.Equal(t, "/secret/path: it is so", told.Message, "for the log")
		credentials := code == codes.Unauthenticated || code == codes.PermissionDenied
		if credentials {
			require.ErrorIs(t, err, upstream.ErrCredentials)
		} else {
			require.NotErrorIs(t, err, upstream.ErrCredentials)
		}
	}
}

// Triton with --grpc-restricted-protocol is not available to those who lack a
// header.
func TestARestrictedProtocolIsAMatterOfCredentials(t *testing.T) {
	s := &triton{answer: func(*call) error {
		return status.Error(codes.Unavailable, "This protocol is restricted, expecting header 'triton-grpc-protocol-key'")
	}}
	_, err := read(t.Context(), s.start(t, Options{}), hello)
	require.ErrorIs(t, err, upstream.ErrCredentials)
	require.Equal(t, http.StatusBadGateway, haiku.ErrorFrom(err).Status)
	require.Len(t, s.asks(), 1)
}

func TestAServerSaysWhenItWantsToBeAskedAgain(t *testing.T) {
	info := func(seconds, nanos uint64) message {
		return message{}.bytes(1, message{}.varint(1, seconds).varint(2, nanos))
	}
	for name, c := range map[string]struct {
		kind  string
		value message
		want  time.Duration
	}{
		"RetryInfo":   {"google.rpc.RetryInfo", info(3, 500_000_000), 3500 * time.Millisecond},
		"no time":     {"google.rpc.RetryInfo", nil, 0},
		"not a time":  {"google.rpc.RetryInfo", message{0xff}, 0},
		"negative":    {"google.rpc.RetryInfo", info(1<<64-1, 1<<64-1), 0},
		"other words": {"google.rpc.DebugInfo", info(3, 0), 0},
	} {
		s := status.New(codes.ResourceExhausted, "slow down").Proto()
		s.Details = append(s.Details, &anypb.Any{TypeUrl: "type.googleapis.com/" + c.kind, Value: c.value})
		server := &triton{answer: func(*call) error { return status.ErrorProto(s) }}
		_, err := read(t.Context(), server.start(t, Options{}), hello)
		require.ErrorIs(t, err, haiku.ErrRateLimited, name)
		require.Equal(t, c.want, haiku.ErrorFrom(err).RetryAfter, name)
	}
	pushed := &triton{answer: func(c *call) error {
		c.SetTrailer(metadata.Pairs("grpc-retry-pushback-ms", "1500"))
		return status.Error(codes.ResourceExhausted, "slow down")
	}}
	_, err := read(t.Context(), pushed.start(t, Options{}), hello)
	require.Equal(t, 1500*time.Millisecond, haiku.ErrorFrom(err).RetryAfter)
}

// What gRPC says itself of a long response is not the server's limit of requests,
// though it has the same code.
func TestALongResponseIsNoLimitOfRequests(t *testing.T) {
	long := &triton{answer: func(c *call) error { return c.send(says(string(make([]byte, 2000))).stream()) }}
	_, err := read(t.Context(), long.start(t, Options{MaxMessageBytes: 1500}), hello)
	require.ErrorIs(t, err, upstream.ErrMalformed)
	require.NotErrorIs(t, err, haiku.ErrRateLimited)
	limited := &triton{answer: func(*call) error { return status.Error(codes.ResourceExhausted, "more than 1500 requests") }}
	_, err = read(t.Context(), limited.start(t, Options{MaxMessageBytes: 1500}), hello)
	require.ErrorIs(t, err, haiku.ErrRateLimited)
}

// Errors inside a stream are texts.
func TestErrorsInAStreamAreKnownByTheirWords(t *testing.T) {
	for text, want := range map[string]error{
		"[request id: 1] Exceeds maximum queue size":                                           haiku.ErrRateLimited,
		"Request timeout expired":                                                              haiku.ErrOverloaded,
		"GRPC server is shutting down and has stopped accepting new requests.":                 haiku.ErrOverloaded,
		"Server is stopping, scheduler for model has stopped accepting new inference requests": haiku.ErrOverloaded,
		"Server exiting": haiku.ErrOverloaded,
		"Request for unknown model: 'llm' is not found":                  upstream.ErrFailed,
		"unexpected inference output 'num_input_tokens' for model 'llm'": upstream.ErrFailed,
		"This model's maximum context length is 2048 tokens":             haiku.ErrContextLength,
		"prompt length (5000) exceeds maximum input length (4096)":       haiku.ErrContextLength,
		"anything else": upstream.ErrFailed,
	} {
		err := (&Engine{}).wire(t.Context(), told([]byte(text), false))
		require.ErrorIs(t, err, want, text)
		var told *StatusError
		require.ErrorAs(t, err, &told)
		require.True(t, told.InStream)
	}
}

func TestLittleEndian(t *testing.T) {
	require.Equal(t, uint64(1<<63), little(binary.LittleEndian.AppendUint64(nil, 1<<63)))
}
