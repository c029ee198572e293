package kserve

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// codec writes and reads the few messages that are used here, without the
// reflection and the generated types of a protocol-buffer library. It is given
// to each call and registered nowhere.
type codec struct{}

type marshaler interface{ marshal() ([]byte, error) }

// reply is a message that is read. What is wrong with one is kept in it:
// grpc would make a status of an error, and lose which it was.
type reply interface{ unmarshal(mem.BufferSlice) }

// Name is empty for the content type application/grpc that all servers know.
func (codec) Name() string { return "" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(marshaler)
	if !ok {
		return nil, fmt.Errorf("kserve: cannot write a %T", v)
	}
	b, err := m.marshal()
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(reply)
	if !ok {
		return fmt.Errorf("kserve: cannot read a %T", v)
	}
	m.unmarshal(data)
	return nil
}

// encoded is a message that has been written, and may be sent more than once.
type encoded []byte

func (e encoded) marshal() ([]byte, error) { return e, nil }

// streamReply and unaryReply are a response in its two wrappings.
type (
	streamReply struct{ response }
	unaryReply  struct{ response }
)

func (r *streamReply) unmarshal(data mem.BufferSlice) {
	r.reset(data.Len())
	data.CopyTo(r.message)
	r.bad = r.decodeStream()
}

func (r *unaryReply) unmarshal(data mem.BufferSlice) {
	r.reset(data.Len())
	data.CopyTo(r.message)
	r.bad = r.decodeUnary()
}
