package kserve

import (
	"context"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/intelliparadigm/haiku"
)

// tokens sends n responses such as the vLLM backend's.
func tokensOf(n int) func(*call) error {
	return func(c *call) error {
		word := says(" token").texts("finish_reason", "None").counts("num_input_tokens", 12).counts("num_output_tokens", 1)
		m := word.of("bench").last(false).stream()
		for range n {
			if err := c.SendMsg(m); err != nil {
				return err
			}
		}
		return c.send(says("").texts("finish_reason", "stop").last(true).stream())
	}
}

// BenchmarkToken is a token on its way from the server, which is in this process
// too, to the reader of the stream.
func BenchmarkToken(b *testing.B) {
	e := (&triton{answer: tokensOf(b.N)}).start(b, Options{})
	b.ReportAllocs()
	b.ResetTimer()
	read := 0
	for tok, err := range haiku.NewStream(b.Context(), e, &haiku.Request{ID: "bench", Prompt: "p"}).Tokens() {
		if err != nil {
			b.Fatal(err)
		}
		read += len(tok.Text)
	}
	if read != b.N*len(" token") {
		b.Fatal(read)
	}
}

// BenchmarkTokenOfGRPC is what of BenchmarkToken is not this package's: the same
// messages over the same stream, received and thrown away.
func BenchmarkTokenOfGRPC(b *testing.B) {
	e := (&triton{answer: tokensOf(b.N)}).start(b, Options{})
	request, err := e.request(&haiku.Request{ID: "bench", Prompt: "p"})
	if err != nil {
		b.Fatal(err)
	}
	out, err := request.marshal()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	stream, err := e.cc.NewStream(ctx, streaming, methodStream, grpc.ForceCodecV2(codec{}))
	if err != nil {
		b.Fatal(err)
	}
	if err := errors.Join(stream.SendMsg(encoded(out)), stream.CloseSend()); err != nil {
		b.Fatal(err)
	}
	for {
		var in ignored
		if err := stream.RecvMsg(&in); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			b.Fatal(err)
		}
	}
}

type ignored struct{}

func (*ignored) unmarshal(mem.BufferSlice) {}

// BenchmarkDecode is a response that is read, without the network.
func BenchmarkDecode(b *testing.B) {
	m := mem.BufferSlice{mem.SliceBuffer(says(" token").texts("finish_reason", "None").
		counts("num_input_tokens", 12).counts("num_output_tokens", 1).of("bench").last(false).stream())}
	in := new(streamReply)
	b.ReportAllocs()
	for b.Loop() {
		in.unmarshal(m)
		for all := in.find("text_output").texts(); all.next(); {
			continue
		}
	}
}
