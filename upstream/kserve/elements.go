package kserve

import (
	"encoding/binary"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/intelliparadigm/haiku/upstream"
)

// texts walks over the elements of an output of BYTES.
type texts struct {
	of     *output
	rest   []byte // raw contents
	fields fields // or InferTensorContents
	value  []byte
	count  int64
	err    error
}

func (o *output) texts() texts {
	t := texts{of: o, rest: o.raw, fields: fields{rest: o.contents}}
	if string(o.datatype) != "BYTES" {
		t.err = fmt.Errorf("%w: output %q is of %.20q and not of BYTES", upstream.ErrMalformed, o.name, o.datatype)
	}
	return t
}

func (t *texts) next() bool {
	if t.err != nil || !t.take() {
		return false
	}
	t.count++
	return true
}

func (t *texts) take() bool {
	if !t.of.isRaw {
		for t.fields.next() {
			if t.fields.is(8, protowire.BytesType) { // bytes_contents
				t.value = t.fields.bytes
				return true
			}
		}
		t.err = t.fields.err
		return false
	}
	if len(t.rest) == 0 {
		return false
	}
	if len(t.rest) < 4 || uint64(binary.LittleEndian.Uint32(t.rest)) > uint64(len(t.rest)-4) {
		t.err = fmt.Errorf("%w: an element of output %q is longer than its tensor", upstream.ErrMalformed, t.of.name)
		return false
	}
	n := 4 + int(binary.LittleEndian.Uint32(t.rest))
	t.value, t.rest = t.rest[4:n], t.rest[n:]
	return true
}

// end is what was wrong, once there is nothing more.
func (t *texts) end() error {
	if t.err == nil && t.of.elements >= 0 && t.of.elements != t.count {
		return fmt.Errorf("%w: output %q has %d elements and a shape for %d", upstream.ErrMalformed, t.of.name, t.count, t.of.elements)
	}
	return t.err
}

// sum adds up the elements of an output of integers, which count something.
func (o *output) sum() (int, error) {
	total := uint64(0)
	add := func(n uint64) bool {
		total += n
		return n <= math.MaxInt32 && total <= math.MaxInt32
	}
	ok := true
	if o.isRaw {
		width := widths[string(o.datatype)]
		if width == 0 || len(o.raw)%width != 0 {
			return 0, fmt.Errorf("%w: output %q of %.20q has %d bytes", upstream.ErrMalformed, o.name, o.datatype, len(o.raw))
		}
		for b := o.raw; len(b) > 0 && ok; b = b[width:] {
			ok = add(little(b[:width]))
		}
	} else {
		f := fields{rest: o.contents}
		for f.next() {
			if f.num < 2 || f.num > 5 { // int, int64, uint and uint64_contents
				continue
			}
			numbers := f.varints()
			for ok && numbers.next() {
				ok = add(numbers.value)
			}
			if numbers.err != nil {
				return 0, numbers.err
			}
		}
		if f.err != nil {
			return 0, f.err
		}
	}
	if !ok {
		return 0, fmt.Errorf("%w: output %q has a number that counts nothing", upstream.ErrMalformed, o.name)
	}
	return int(total), nil
}

// widths are the sizes of integers in raw contents, in bytes.
var widths = map[string]int{
	"INT32": 4, "UINT32": 4, "INT64": 8, "UINT64": 8,
}

// little reads an unsigned integer of len(b) bytes. A negative one becomes too
// large to count anything.
func little(b []byte) (n uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		n = n<<8 | uint64(b[i])
	}
	return n
}
