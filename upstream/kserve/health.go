package kserve

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Live asks the server whether it runs at all. ctx bounds the call, and the wait
// for a connection with it.
func (e *Engine) Live(ctx context.Context) error {
	return e.probe(ctx, methodLive, emptyRequest{}, "the server does not live")
}

// Ready asks the server whether it and the model are ready: nil if so, otherwise
// an error that matches [ErrNotReady], with the reason. ctx bounds the calls, and
// the wait for a connection with them. It is what a pool's health probe asks.
func (e *Engine) Ready(ctx context.Context) error {
	if err := e.probe(ctx, methodReady, emptyRequest{}, "the server is not ready"); err != nil {
		return err
	}
	request := &modelRequest{e.opts.Model, e.opts.Version}
	return e.probe(ctx, methodModel, request, fmt.Sprintf("the model %q is not ready", e.opts.Model))
}

// probe asks a question of yes or no.
func (e *Engine) probe(ctx context.Context, method string, in marshaler, no string) error {
	var yes boolReply
	if err := e.call(ctx, method, in, &yes); err != nil {
		return fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	if yes.err != nil {
		return fmt.Errorf("%w: %w", ErrNotReady, yes.err)
	}
	if !yes.value {
		return fmt.Errorf("%w: %s", ErrNotReady, no)
	}
	return nil
}

// call makes a unary call. Of its errors only ctx's own is one of a context.
func (e *Engine) call(ctx context.Context, method string, in marshaler, out reply) error {
	err := e.cc.Invoke(e.outgoing(ctx), method, in, out, e.calls...)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	failed := fromStatus(err, nil, e.opts.MaxMessageBytes)
	if failed.Code == codes.DeadlineExceeded && ended(ctx) {
		return ctx.Err()
	}
	return failed
}

// boolReply is a ServerLiveResponse, ServerReadyResponse or ModelReadyResponse,
// whose only field is 1.
type boolReply struct {
	value bool
	err   error
}

func (r *boolReply) unmarshal(data mem.BufferSlice) {
	f := fields{rest: data.Materialize()}
	for f.next() {
		if f.is(1, protowire.VarintType) {
			r.value = f.varint != 0
		}
	}
	r.err = f.err
}

// TensorInfo describes a tensor of a model. A dimension of -1 is of any size.
type TensorInfo struct {
	Name, Datatype string
	Shape          []int64
}

// ModelMetadata is what a server tells of a model.
type ModelMetadata struct {
	Name, Platform  string
	Versions        []string
	Inputs, Outputs []TensorInfo
}

// Metadata asks the server for the model's tensors: a host that starts can
// compare them with its dialect, and say early what would fail later.
func (e *Engine) Metadata(ctx context.Context) (*ModelMetadata, error) {
	var out metadataReply
	if err := e.call(ctx, methodMetadata, &modelRequest{e.opts.Model, e.opts.Version}, &out); err != nil {
		return nil, fmt.Errorf("kserve: metadata of %q: %w", e.opts.Model, err)
	}
	if out.err != nil {
		return nil, fmt.Errorf("kserve: metadata of %q: %w", e.opts.Model, out.err)
	}
	return &out.ModelMetadata, nil
}

// metadataReply is a ModelMetadataResponse: 1 name, 2 versions, 3 platform,
// 4 inputs, 5 outputs.
type metadataReply struct {
	ModelMetadata
	err error
}

func (r *metadataReply) unmarshal(data mem.BufferSlice) {
	f := fields{rest: data.Materialize()}
	for r.err == nil && f.next() {
		if f.typ != protowire.BytesType {
			continue
		}
		switch f.num {
		case 1:
			r.Name = string(f.bytes)
		case 2:
			r.Versions = append(r.Versions, string(f.bytes))
		case 3:
			r.Platform = string(f.bytes)
		case 4:
			r.Inputs, r.err = appendInfo(r.Inputs, f.bytes)
		case 5:
			r.Outputs, r.err = appendInfo(r.Outputs, f.bytes)
		}
	}
	if r.err == nil {
		r.err = f.err
	}
}

// appendInfo reads a TensorMetadata: 1 name, 2 datatype, 3 shape.
func appendInfo(to []TensorInfo, b []byte) ([]TensorInfo, error) {
	var t TensorInfo
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.is(1, protowire.BytesType):
			t.Name = string(f.bytes)
		case f.is(2, protowire.BytesType):
			t.Datatype = string(f.bytes)
		case f.num == 3:
			dims := f.varints()
			for dims.next() {
				t.Shape = append(t.Shape, int64(dims.value))
			}
			f.err = dims.err
		}
	}
	return append(to, t), f.err
}
