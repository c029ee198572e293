package haiku_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// countingMemory is a haiku.Memory that knows what is still out.
type countingMemory struct {
	mu    sync.Mutex
	out   map[*byte]bool
	total int
	fail  error
}

func (m *countingMemory) Alloc(bytes int) ([]byte, error) {
	if m.fail != nil {
		return nil, m.fail
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b := make([]byte, bytes+63)
	b = b[-uintptr(unsafe.Pointer(&b[0]))%64:][:bytes]
	m.out[&b[0]] = true
	m.total++
	return b, nil
}

func (m *countingMemory) Free(b []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.out[&b[0]] {
		panic("freed twice, or never allocated")
	}
	delete(m.out, &b[0])
}

// deviceModel is a Model whose streams lie in its own memory.
type deviceModel struct {
	haiku.Model
	memory haiku.Memory
}

func (d deviceModel) StreamMemory() haiku.Memory { return d.memory }

// wrapped is a Model around a Model.
type wrapped struct{ inner haiku.Model }

func (w wrapped) Unwrap() haiku.Model { return w.inner }
func (w wrapped) Generate(ctx context.Context, s *haiku.StreamWriter, r *haiku.Request) error {
	return w.inner.Generate(ctx, s, r)
}

func TestStreamMemoryIsGivenBack(t *testing.T) {
	memory := &countingMemory{out: map[*byte]bool{}}
	for _, m := range []haiku.Model{pieces("a", "b"), failing(haiku.ErrOverloaded, "a"), endless("x")} {
		s := haiku.NewStream(quiet(t.Context()), wrapped{wrapped{deviceModel{m, memory}}}, &haiku.Request{})
		n := 0
		for range s.Tokens() {
			if n++; n == 100 {
				break
			}
		}
	}
	require.Equal(t, 3, memory.total)
	require.Empty(t, memory.out)
}

func TestNoMemoryMeansOverloaded(t *testing.T) {
	memory := &countingMemory{fail: errors.New("out of pinned memory")}
	_, err := haiku.NewStream(t.Context(), deviceModel{pieces("a"), memory}, &haiku.Request{}).Text()
	require.ErrorIs(t, err, haiku.ErrOverloaded)
	require.ErrorIs(t, err, memory.fail)
}

func TestModelAs(t *testing.T) {
	device := deviceModel{pieces(), &countingMemory{}}
	type memoryOwner interface{ StreamMemory() haiku.Memory }
	got, ok := haiku.ModelAs[memoryOwner](wrapped{wrapped{device}})
	require.True(t, ok)
	require.Equal(t, device.memory, got.StreamMemory())
	_, ok = haiku.ModelAs[haiku.Lister](wrapped{device})
	require.False(t, ok)
	_, ok = haiku.ModelAs[haiku.Lister](nil)
	require.False(t, ok)
}
