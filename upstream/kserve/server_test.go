package kserve

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/intelliparadigm/haiku"
)

// The server of these tests writes and reads its messages by hand, and shares
// nothing with the package but the field numbers in the public .proto files.

// message is the bytes of a protocol buffer.
type message []byte

func (m message) varint(field int, v uint64) message {
	return binary.AppendUvarint(binary.AppendUvarint(m, uint64(field)<<3), v)
}

func (m message) bytes(field int, v []byte) message {
	m = binary.AppendUvarint(m, uint64(field)<<3|2)
	return append(binary.AppendUvarint(m, uint64(len(v))), v...)
}

func (m message) text(field int, v string) message { return m.bytes(field, []byte(v)) }

// infer is a ModelInferResponse under construction.
type infer struct {
	id        string
	final     *bool
	described []message
	raw       [][]byte
}

func says(texts ...string) *infer { return new(infer).texts("text_output", texts...) }

func (r *infer) output(name, datatype string, raw []byte, shape ...int64) *infer {
	var dims message
	for _, n := range shape {
		dims = binary.AppendUvarint(dims, uint64(n))
	}
	r.described = append(r.described, message{}.text(1, name).text(2, datatype).bytes(3, dims))
	r.raw = append(r.raw, raw)
	return r
}

func (r *infer) texts(name string, texts ...string) *infer {
	return r.output(name, "BYTES", prefixed(texts...), int64(len(texts)))
}

func (r *infer) counts(name string, counts ...uint32) *infer {
	var raw []byte
	for _, n := range counts {
		raw = binary.LittleEndian.AppendUint32(raw, n)
	}
	return r.output(name, "UINT32", raw, int64(len(counts)))
}

func (r *infer) last(final bool) *infer { r.final = &final; return r }

func (r *infer) of(id string) *infer { r.id = id; return r }

func prefixed(texts ...string) (raw []byte) {
	for _, text := range texts {
		raw = append(binary.LittleEndian.AppendUint32(raw, uint32(len(text))), text...)
	}
	return raw
}

func (r *infer) unary() message {
	m := message{}.text(1, "llm").text(2, "1").text(3, r.id)
	if r.final != nil {
		value := uint64(0)
		if *r.final {
			value = 1
		}
		m = m.bytes(4, message{}.text(1, "triton_final_response").bytes(2, message{}.varint(1, value)))
	}
	for _, o := range r.described {
		m = m.bytes(5, o)
	}
	for _, raw := range r.raw {
		m = m.bytes(6, raw)
	}
	return m
}

func (r *infer) stream() message { return message{}.bytes(2, r.unary()) }

func failed(text string) message {
	return message{}.text(1, text).bytes(2, new(infer).last(true).unary())
}

// asked is a ModelInferRequest as the server reads it.
type asked struct {
	model, version, id string
	parameters         map[string]message
	names              []string
	datatypes          map[string]string
	shapes             map[string][]int64
	raw                map[string][]byte
	outputs            []string
}

// parts splits a message into its fields of bytes and numbers.
func parts(m []byte, field func(number int, v []byte, n uint64)) {
	for len(m) > 0 {
		key, n := binary.Uvarint(m)
		m = m[n:]
		v, n := binary.Uvarint(m)
		m = m[n:]
		switch key & 7 {
		case 0:
			field(int(key>>3), nil, v)
		case 2:
			field(int(key>>3), m[:v], 0)
			m = m[v:]
		default:
			panic(fmt.Sprintf("wire type %d", key&7))
		}
	}
}

func ask(m []byte) *asked {
	a := &asked{parameters: map[string]message{}, datatypes: map[string]string{}, shapes: map[string][]int64{}, raw: map[string][]byte{}}
	raws := 0
	parts(m, func(number int, v []byte, _ uint64) {
		switch number {
		case 1:
			a.model = string(v)
		case 2:
			a.version = string(v)
		case 3:
			a.id = string(v)
		case 4:
			var key string
			parts(v, func(number int, v []byte, _ uint64) {
				if number == 1 {
					key = string(v)
				} else {
					a.parameters[key] = message(v)
				}
			})
		case 5:
			a.input(v)
		case 6:
			parts(v, func(_ int, v []byte, _ uint64) { a.outputs = append(a.outputs, string(v)) })
		case 7:
			a.raw[a.names[raws]] = v
			raws++
		}
	})
	return a
}

func (a *asked) input(v []byte) {
	var name, datatype string
	var shape []int64
	parts(v, func(number int, v []byte, n uint64) {
		switch {
		case number == 1:
			name = string(v)
		case number == 2:
			datatype = string(v)
		case number == 3 && v == nil:
			shape = append(shape, int64(n))
		case number == 3:
			for len(v) > 0 {
				n, size := binary.Uvarint(v)
				shape, v = append(shape, int64(n)), v[size:]
			}
		}
	})
	a.names = append(a.names, name)
	a.datatypes[name], a.shapes[name] = datatype, shape
}

// text is the only element of an input of BYTES.
func (a *asked) text(name string) string {
	raw := a.raw[name]
	if len(raw) < 4 || int(binary.LittleEndian.Uint32(raw)) != len(raw)-4 {
		return fmt.Sprintf("not one text: %q", raw)
	}
	return string(raw[4:])
}

// frames is the codec of the server: messages are bytes.
type frames struct{}

func (frames) Name() string { return "" }

func (frames) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(message))}, nil
}

func (frames) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*message) = data.Materialize()
	return nil
}

// call is one call as a script sees it.
type call struct {
	grpc.ServerStream
	method  string
	request *asked
}

func (c *call) send(messages ...message) error {
	for _, m := range messages {
		if err := c.SendMsg(m); err != nil {
			return err
		}
	}
	return nil
}

// gone waits for the client to cancel.
func (c *call) gone() error {
	<-c.Context().Done()
	return c.Context().Err()
}

// wait takes a while, or until the client cancels.
func (c *call) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.Context().Done():
	}
}

// triton is a scripted server. answer is run for each inference.
type triton struct {
	answer func(*call) error
	ready  map[string]message // replies of the other methods; none is yes
	fails  map[string]error   // or how they fail

	mu    sync.Mutex
	calls []*call
	ended []error // how the inferences' contexts had ended when their scripts returned
	heads []metadata.MD
}

func (s *triton) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	var in message
	if err := stream.RecvMsg(&in); err != nil {
		return err
	}
	head, _ := metadata.FromIncomingContext(stream.Context())
	c := &call{ServerStream: stream, method: method}
	if method == methodStream || method == methodInfer {
		c.request = ask(in)
	}
	s.mu.Lock()
	s.calls, s.heads = append(s.calls, c), append(s.heads, head)
	s.mu.Unlock()
	if c.request == nil {
		if err := s.fails[method]; err != nil {
			return err
		}
		if reply, ok := s.ready[method]; ok {
			return stream.SendMsg(reply)
		}
		return stream.SendMsg(message{}.varint(1, 1))
	}
	err := s.answer(c)
	s.mu.Lock()
	s.ended = append(s.ended, stream.Context().Err())
	s.mu.Unlock()
	return err
}

func (s *triton) asks() []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// start serves s over a network in memory and returns a client of it.
func (s *triton) start(t testing.TB, opts Options, dial ...grpc.DialOption) *Engine {
	lis := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.WaitForHandlers(true), grpc.ForceServerCodecV2(frames{}), grpc.UnknownServiceHandler(s.handle))
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(lis) }()
	if opts.Model == "" {
		opts.Model = "llm"
	}
	dial = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
	}, dial...)
	e, err := New("passthrough:///triton", opts, dial...)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, e.Close())
		server.Stop()
		<-served
	})
	return e
}

// read reads an answer to its end: the texts, what ended them, and the error.
func read(ctx context.Context, e *Engine, req *haiku.Request) (*seen, error) {
	s := &seen{stream: haiku.NewStream(quiet(ctx), e, req)}
	s.texts = make([]string, max(req.Choices, 1))
	s.finish = make([]haiku.FinishReason, max(req.Choices, 1))
	for tok, err := range s.stream.Tokens() {
		if err != nil {
			return s, err
		}
		s.texts[tok.Choice] += tok.Text
		if tok.Finish != "" {
			s.finish[tok.Choice] = tok.Finish
		}
	}
	return s, nil
}

// quiet keeps failures that a test wants out of its output.
func quiet(ctx context.Context) context.Context {
	return haiku.WithLogger(ctx, slog.New(slog.DiscardHandler))
}

type seen struct {
	stream *haiku.StreamWriter
	texts  []string
	finish []haiku.FinishReason
}
