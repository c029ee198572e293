package kserve

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/intelliparadigm/haiku/upstream"
)

// maxOutputs bounds what a small message can make this process allocate.
const maxOutputs = 256

// response is a ModelStreamInferResponse, or a ModelInferResponse alone, as it
// came: all slices point into the message. It is used for one message after the
// other and allocates nothing once it has grown.
type response struct {
	message []byte
	bad     error // what is wrong with the message

	failure []byte // error_message
	id      []byte
	outputs []output
	raw     [][]byte
	// flagged says that the server tells of each response whether it is the
	// last one, and final that this one is.
	flagged, final bool
}

// output is an InferOutputTensor.
type output struct {
	name, datatype []byte
	elements       int64  // product of the shape, -1 if the server gives none
	contents       []byte // InferTensorContents
	raw            []byte
	isRaw          bool
}

// reset makes room for a message of n bytes and forgets the one before.
func (r *response) reset(n int) {
	if cap(r.message) < n {
		r.message = make([]byte, n, max(n, 2*cap(r.message)))
	}
	*r = response{message: r.message[:n], outputs: r.outputs[:0], raw: r.raw[:0]}
}

// decodeStream reads message as a ModelStreamInferResponse: 1 error_message,
// 2 infer_response.
func (r *response) decodeStream() error {
	f := fields{rest: r.message}
	for f.next() {
		switch {
		case f.is(1, protowire.BytesType):
			r.failure = f.bytes
		case f.is(2, protowire.BytesType):
			if err := r.decodeInfer(f.bytes); err != nil {
				return err
			}
		}
	}
	if f.err != nil {
		return f.err
	}
	return r.join()
}

// decodeUnary reads message as a ModelInferResponse.
func (r *response) decodeUnary() error {
	if err := r.decodeInfer(r.message); err != nil {
		return err
	}
	return r.join()
}

// decodeInfer reads a ModelInferResponse: 3 id, 4 parameters, 5 outputs,
// 6 raw_output_contents.
func (r *response) decodeInfer(b []byte) error {
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.is(3, protowire.BytesType):
			r.id = f.bytes
		case f.is(4, protowire.BytesType):
			if err := r.parameter(f.bytes); err != nil {
				return err
			}
		case f.is(5, protowire.BytesType):
			if err := r.output(f.bytes); err != nil {
				return err
			}
		case f.is(6, protowire.BytesType):
			if len(r.raw) == maxOutputs {
				return fmt.Errorf("%w: more than %d raw contents", upstream.ErrMalformed, maxOutputs)
			}
			r.raw = append(r.raw, f.bytes)
		}
	}
	return f.err
}

// parameter reads an entry of the map of parameters: 1 key, 2 value, of whose
// fields bool_param is the first.
func (r *response) parameter(b []byte) error {
	var key, value []byte
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.is(1, protowire.BytesType):
			key = f.bytes
		case f.is(2, protowire.BytesType):
			value = f.bytes
		}
	}
	if f.err != nil || string(key) != parameterFinal {
		return f.err
	}
	r.flagged, r.final = true, false
	f = fields{rest: value}
	for f.next() {
		if f.is(1, protowire.VarintType) {
			r.final = f.varint != 0
		}
	}
	return f.err
}

// output reads an InferOutputTensor: 1 name, 2 datatype, 3 shape, 5 contents.
func (r *response) output(b []byte) error {
	if len(r.outputs) == maxOutputs {
		return fmt.Errorf("%w: more than %d outputs", upstream.ErrMalformed, maxOutputs)
	}
	o := output{elements: -1}
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.is(1, protowire.BytesType):
			o.name = f.bytes
		case f.is(2, protowire.BytesType):
			o.datatype = f.bytes
		case f.num == 3:
			dims := f.varints()
			for dims.next() {
				if err := o.dimension(dims.value); err != nil {
					return err
				}
			}
			f.err = dims.err
		case f.is(5, protowire.BytesType):
			o.contents = f.bytes
		}
	}
	r.outputs = append(r.outputs, o)
	return f.err
}

// dimension multiplies one more dimension into the number of elements.
func (o *output) dimension(n uint64) error {
	if o.elements < 0 {
		o.elements = 1
	}
	if n > math.MaxInt32 || o.elements > math.MaxInt32 {
		return fmt.Errorf("%w: output %q has a dimension of %d", upstream.ErrMalformed, o.name, int64(n))
	}
	o.elements *= int64(n)
	return nil
}

// join gives the outputs their raw contents, which come in a list of their own:
// for all of them or for none.
func (r *response) join() error {
	if len(r.raw) == 0 {
		return nil
	}
	if len(r.raw) != len(r.outputs) {
		return fmt.Errorf("%w: %d outputs and %d raw contents", upstream.ErrMalformed, len(r.outputs), len(r.raw))
	}
	for i := range r.outputs {
		r.outputs[i].raw, r.outputs[i].isRaw = r.raw[i], true
	}
	return nil
}

// find returns the output with a name, nil if there is none.
func (r *response) find(name string) *output {
	if name == "" {
		return nil
	}
	for i := range r.outputs {
		if string(r.outputs[i].name) == name {
			return &r.outputs[i]
		}
	}
	return nil
}

// fields walks over the fields of a message. Fields of a number or type that
// nobody asks for are passed by, as protocol buffers want it.
type fields struct {
	rest   []byte
	num    protowire.Number
	typ    protowire.Type
	bytes  []byte // of a field with bytes
	varint uint64
	err    error
}

func (f *fields) next() bool {
	if f.err != nil || len(f.rest) == 0 {
		return false
	}
	var n int
	if f.num, f.typ, n = protowire.ConsumeTag(f.rest); n < 0 {
		return f.fail(n)
	}
	f.rest = f.rest[n:]
	f.bytes, f.varint = nil, 0
	switch f.typ {
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(f.rest)
	case protowire.VarintType:
		f.varint, n = protowire.ConsumeVarint(f.rest)
	default:
		n = protowire.ConsumeFieldValue(f.num, f.typ, f.rest)
	}
	if n < 0 {
		return f.fail(n)
	}
	f.rest = f.rest[n:]
	return true
}

func (f *fields) fail(code int) bool {
	f.err = fmt.Errorf("%w: %w", upstream.ErrMalformed, protowire.ParseError(code))
	return false
}

func (f *fields) is(num protowire.Number, typ protowire.Type) bool {
	return f.num == num && f.typ == typ
}

// varints walks over the numbers of the field that f stands at, which are
// packed into one or come one by one.
func (f *fields) varints() varints {
	switch f.typ {
	case protowire.BytesType:
		return varints{rest: f.bytes}
	case protowire.VarintType:
		return varints{value: f.varint, one: true}
	}
	return varints{}
}

type varints struct {
	rest  []byte
	value uint64
	one   bool
	err   error
}

func (v *varints) next() bool {
	if v.one {
		v.one = false
		return true
	}
	if len(v.rest) == 0 {
		return false
	}
	var n int
	if v.value, n = protowire.ConsumeVarint(v.rest); n < 0 {
		v.err = fmt.Errorf("%w: %w", upstream.ErrMalformed, protowire.ParseError(n))
		return false
	}
	v.rest = v.rest[n:]
	return true
}
