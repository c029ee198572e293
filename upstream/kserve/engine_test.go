package kserve

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/upstream"
)

func TestOptionsAreChecked(t *testing.T) {
	secured := grpc.WithTransportCredentials(insecure.NewCredentials())
	for name, opts := range map[string]Options{
		"no model":     {},
		"max tokens":   {Model: "m", MaxTokens: -1},
		"message size": {Model: "m", MaxMessageBytes: -1},
		"retry wait":   {Model: "m", RetryWait: -1},
	} {
		_, err := New("localhost:1", opts, secured)
		require.ErrorContains(t, err, "kserve: ", name)
	}
	_, err := New("localhost:1", Options{Model: "m"})
	require.ErrorContains(t, err, "no transport security set")
}

func ok(c *call) error { return c.send(says("a").last(true).stream()) }

func TestARequestSaysWhatIsAsked(t *testing.T) {
	s := &triton{answer: ok}
	e := s.start(t, Options{Model: "llm", Version: "3"})
	_, err := read(t.Context(), e, &haiku.Request{ID: "req-7", Prompt: "hé"})
	require.NoError(t, err)
	r := s.asks()[0].request
	require.Equal(t, methodStream, s.asks()[0].method)
	require.Equal(t, []string{"llm", "3", "req-7", "hé"}, []string{r.model, r.version, r.id, r.text("text_input")})
	require.Equal(t, map[string]message{"triton_enable_empty_final_response": {8, 1}}, r.parameters)
	require.Equal(t, "application/grpc", s.heads[0].Get("content-type")[0])

	for _, id := range []string{strings.Repeat("x", 1000), "\xff"} { // which a log or protocol buffers would not take
		_, err = read(t.Context(), e, &haiku.Request{ID: id, Prompt: "p"})
		require.NoError(t, err)
		require.Empty(t, s.asks()[len(s.asks())-1].request.id)
	}
}

func TestConversationsNeedATemplate(t *testing.T) {
	messages := []haiku.Message{{Role: haiku.RoleUser, Content: "hi"}}
	s := &triton{answer: ok}
	e := s.start(t, Options{})
	_, err := read(t.Context(), e, &haiku.Request{Messages: messages})
	require.ErrorIs(t, err, haiku.ErrUnsupported)
	require.ErrorContains(t, err, "no chat template")

	bad := errors.New("bad roles")
	e = s.start(t, Options{Render: func(m []haiku.Message) (string, error) {
		if len(m) > 1 {
			return "", haiku.ErrInvalidRequest.Because(bad)
		}
		return "<user>" + m[0].Content, nil
	}})
	_, err = read(t.Context(), e, &haiku.Request{Messages: messages})
	require.NoError(t, err)
	require.Equal(t, "<user>hi", s.asks()[0].request.text("text_input"))
	_, err = read(t.Context(), e, &haiku.Request{Messages: append(messages, messages...)})
	require.ErrorIs(t, err, bad)
	require.Equal(t, http.StatusBadRequest, haiku.ErrorFrom(err).Status)
	require.Len(t, s.asks(), 1)
}

func TestWhatCannotBeSentIsRefused(t *testing.T) {
	s := &triton{answer: ok}
	e := s.start(t, Options{MaxMessageBytes: 1000})
	for name, c := range map[string]struct {
		req  haiku.Request
		want error
	}{
		"logprobs":     {haiku.Request{Prompt: "p", Logprobs: true}, haiku.ErrUnsupported},
		"a long one":   {haiku.Request{Prompt: strings.Repeat("p", 1000)}, haiku.ErrBodyTooLarge},
		"invalid UTF8": {haiku.Request{Prompt: "\xff"}, haiku.ErrInvalidRequest},
	} {
		_, err := read(t.Context(), e, &c.req)
		require.ErrorIs(t, err, c.want, name)
	}
	require.Empty(t, s.asks())
	_, err := read(t.Context(), s.start(t, Options{Dialect: parameters{{"p", []int{}}}}), hello)
	require.ErrorContains(t, err, "which the protocol does not have")
}

// parameters is a dialect of a host that sends them.
type parameters []Parameter

func (d parameters) Build(to *Inference, req *haiku.Request) error {
	to.Parameters = d
	return VLLM{}.Build(to, req)
}

func (d parameters) Answer() Answer { return VLLM{}.Answer() }

func TestNamesAndAdapters(t *testing.T) {
	s := &triton{answer: ok}
	e := s.start(t, Options{Model: "vllm_model", Name: "llama", Adapters: []string{"poet"}})
	require.Equal(t, []haiku.ModelInfo{{ID: "llama", OwnedBy: "triton"}, {ID: "poet", Parent: "llama", OwnedBy: "triton"}}, e.Models())
	lister, found := haiku.ModelAs[haiku.Lister](e)
	require.True(t, found)
	require.Len(t, lister.Models(), 2)
	for i, c := range []struct{ asked, serves, adapter string }{
		{"", "llama", ""}, {"llama", "llama", ""}, {"gpt", "llama", ""}, {"poet", "poet", `"lora_name":"poet"`},
	} {
		got, err := read(t.Context(), e, &haiku.Request{Prompt: "p", Model: c.asked})
		require.NoError(t, err)
		require.Equal(t, c.serves, got.stream.Model())
		parameters := s.asks()[i].request.text("sampling_parameters")
		require.Contains(t, parameters, c.adapter)
		require.Equal(t, c.adapter != "", strings.Contains(parameters, "lora_name"))
	}
}

// What a handler's context holds for other clients, or has from its own, is not
// for the engine.
func TestNothingOfTheClientsLeaks(t *testing.T) {
	s := &triton{answer: ok}
	e := s.start(t, Options{
		Metadata: metadata.MD{"X-Team": {"poets"}},
		Inject:   func(_ context.Context, md metadata.MD) { md.Set("tracestate", "v=1"); md.Append("x-team", "more") },
	})
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer secret", "cookie", "secret")
	ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("x-api-key", "secret"))
	for range 2 {
		_, err := read(ctx, e, hello)
		require.NoError(t, err)
	}
	require.NoError(t, e.Ready(ctx))
	require.Len(t, s.heads, 4)
	for _, head := range s.heads {
		require.Equal(t, []string{"poets", "more"}, head.Get("x-team"))
		require.Equal(t, []string{"v=1"}, head.Get("tracestate"))
		for name, values := range head {
			require.NotContains(t, strings.Join(values, " "), "secret", name)
		}
		require.Empty(t, head.Get("triton_grpc_error"))
	}
}

func TestTheTraceGoesOn(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	s := &triton{answer: ok}
	e := s.start(t, Options{GRPCErrors: true})
	api := haiku.New()
	api.Register("POST /", haiku.HandlerFunc(func(c *haiku.Context) {
		c.Stream(haiku.NewStream(c.Context(), e, hello))
	}))
	for _, trace := range []string{parent, "", "00-broken"} {
		r := httptest.NewRequest("POST", "/", nil)
		r.Header.Set("traceparent", trace)
		r.Header.Set("Authorization", "Bearer secret")
		api.ServeHTTP(httptest.NewRecorder(), r)
	}
	require.Equal(t, []string{parent}, s.heads[0].Get("traceparent"), "not sampled, and it stays so")
	require.Empty(t, s.heads[1].Get("traceparent"))
	require.Empty(t, s.heads[2].Get("traceparent"))
	require.Equal(t, []string{"true"}, s.heads[0].Get("triton_grpc_error"))
	require.Empty(t, s.heads[0].Get("authorization"))
}

// token is what a host gives as grpc.WithPerRPCCredentials.
type token struct{ err error }

func (k token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer ours"}, k.err
}

func (token) RequireTransportSecurity() bool { return false }

var _ credentials.PerRPCCredentials = token{}

func TestCredentialsOfTheHost(t *testing.T) {
	s := &triton{answer: ok}
	_, err := read(t.Context(), s.start(t, Options{}, grpc.WithPerRPCCredentials(token{})), hello)
	require.NoError(t, err)
	require.Equal(t, []string{"Bearer ours"}, s.heads[0].Get("authorization"))

	e := s.start(t, Options{}, grpc.WithPerRPCCredentials(token{errors.New("expired")}))
	_, err = read(t.Context(), e, hello)
	require.ErrorIs(t, err, upstream.ErrCredentials)
	require.ErrorIs(t, err, upstream.ErrFailed)
	require.Equal(t, http.StatusBadGateway, haiku.ErrorFrom(err).Status, "it is not the client who has to log in")
	require.Len(t, s.asks(), 1)
}

func TestReady(t *testing.T) {
	no := message{}
	for name, c := range map[string]struct {
		replies map[string]message
		want    error
		says    string
	}{
		"all is well":         {nil, nil, ""},
		"the server is not":   {map[string]message{methodReady: no}, ErrNotReady, "the server is not ready"},
		"the model is not":    {map[string]message{methodModel: no.varint(1, 0)}, ErrNotReady, `the model "llm" is not ready`},
		"the answer is none":  {map[string]message{methodModel: {0xff}}, ErrNotReady, "no answer"},
		"a newer answer":      {map[string]message{methodModel: no.text(9, "x").varint(1, 1)}, nil, ""},
		"it lives, only that": {map[string]message{methodLive: no}, nil, ""},
	} {
		s := &triton{ready: c.replies}
		e := s.start(t, Options{})
		err := e.Ready(t.Context())
		if c.want == nil {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorIs(t, err, c.want, name)
		require.ErrorContains(t, err, c.says, name)
	}
	s := &triton{ready: map[string]message{methodLive: no}}
	require.ErrorIs(t, s.start(t, Options{}).Live(t.Context()), ErrNotReady)
	require.NoError(t, (&triton{}).start(t, Options{}).Live(t.Context()))
	s.fails = map[string]error{
		methodReady: status.Error(codes.Unauthenticated, "who are you"), methodModel: status.Error(codes.DeadlineExceeded, "late"),
	}
	err := s.start(t, Options{}).Ready(t.Context())
	require.ErrorIs(t, err, ErrNotReady)
	require.ErrorIs(t, err, upstream.ErrCredentials)
	require.ErrorContains(t, err, "Unauthenticated: who are you")
	delete(s.fails, methodReady)
	require.NotErrorIs(t, s.start(t, Options{}).Ready(t.Context()), context.DeadlineExceeded)
	_, err = (&triton{fails: map[string]error{methodMetadata: status.Error(codes.NotFound, "no")}}).start(t, Options{}).Metadata(t.Context())
	require.ErrorContains(t, err, "NotFound: no")
}

func TestAProbeEndsWithItsContext(t *testing.T) {
	s := &triton{fails: map[string]error{methodReady: status.Error(codes.DeadlineExceeded, "I know it too")}}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.start(t, Options{}).Ready(cancelled), context.Canceled)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, s.start(t, Options{}).Ready(ctx), context.DeadlineExceeded)
	})
}

func TestMetadata(t *testing.T) {
	s := &triton{ready: map[string]message{methodMetadata: golden(t, "metadata")}}
	m, err := s.start(t, Options{Version: "2"}).Metadata(t.Context())
	require.NoError(t, err)
	require.Equal(t, "vllm", m.Platform)
	require.Equal(t, []TensorInfo{{"text_output", "BYTES", []int64{-1, 3}}}, m.Outputs)
	for _, bad := range []message{{0xff}, message{}.bytes(4, []byte{0xff}), message{}.bytes(5, message{}.bytes(3, []byte{0x80}))} {
		s.ready[methodMetadata] = bad
		_, err = s.start(t, Options{}).Metadata(t.Context())
		require.ErrorIs(t, err, upstream.ErrMalformed)
	}
}
