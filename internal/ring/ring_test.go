package ring

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// newRing returns a ring that is checked and freed at the test's end.
func newRing(t testing.TB, cfg Config) *Ring {
	t.Helper()
	r, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, r.check())
		r.Free()
	})
	return r
}

func TestLayoutIsFixed(t *testing.T) {
	var s Slot
	require.Equal(t, []uintptr{32, 0, 4, 8, 12, 16, 20, 24, 26, 28, 29}, []uintptr{
		unsafe.Sizeof(s), unsafe.Offsetof(s.Token), unsafe.Offsetof(s.Logprob),
		unsafe.Offsetof(s.ArenaOff), unsafe.Offsetof(s.TextLen), unsafe.Offsetof(s.AuxLen),
		unsafe.Offsetof(s.Drop), unsafe.Offsetof(s.Choice), unsafe.Offsetof(s.Hold),
		unsafe.Offsetof(s.Flags), unsafe.Offsetof(s.Finish),
	})
	require.Equal(t, []uintptr{headerBytes, lineBytes, lineBytes, lineBytes}, []uintptr{
		unsafe.Sizeof(header{}), unsafe.Sizeof(producerLine{}),
		unsafe.Sizeof(consumerLine{}), unsafe.Sizeof(signalLine{}),
	})
	require.Equal(t, []int{384, 512, 640, 768, 32},
		[]int{producerOff, consumerOff, signalOff, slotsOff, slotBytes})
}

func TestRegionHoldsTheSlotBytes(t *testing.T) {
	r := newRing(t, Config{Slots: 4, ArenaBytes: 64})
	require.True(t, r.TryPush(Slot{Token: 0x01020304, Choice: 0x0506, Hold: 0x0708, Drop: 9, Finish: 10}, []byte("hi"), []byte{0xAA}))
	require.Equal(t, []byte{
		4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0,
		1, 0, 0, 0, 9, 0, 0, 0, 6, 5, 8, 7, FlagText | FlagAux, 10, 0, 0,
	}, r.region[slotsOff:slotsOff+slotBytes])
	require.Equal(t, []byte("hi\xAA"), r.region[slotsOff+4*slotBytes:][:3])
	require.Equal(t, byte(1), r.region[producerOff])
}

func TestRecordsComeOutInOrderWithTheirPayloads(t *testing.T) {
	r := newRing(t, Config{Slots: 4, ArenaBytes: 64})
	require.Equal(t, 16, r.MaxPayload())
	require.True(t, r.TryPush(Slot{Token: 7, Logprob: -0.5}, nil, nil))
	require.True(t, r.TryPush(Slot{Token: NoToken, Choice: 1, Hold: 2}, []byte("abc"), []byte("xy")))
	require.True(t, r.TryPush(Slot{Token: 8, Flags: FlagFinish | FlagText, Finish: 3, ArenaOff: 99, TextLen: 5}, nil, nil))
	require.Equal(t, 3, r.Len())

	s, text, aux, ok := r.Peek()
	require.True(t, ok)
	require.Equal(t, Slot{Token: 7, Logprob: -0.5}, s)
	require.Nil(t, text)
	require.Nil(t, aux)
	r.Advance()

	s, text, aux, ok = r.Peek()
	require.True(t, ok)
	require.Equal(t, Slot{Token: NoToken, Choice: 1, Hold: 2, TextLen: 3, AuxLen: 2, Flags: FlagText | FlagAux}, s)
	require.Equal(t, "abc", string(text))
	require.Equal(t, "xy", string(aux))
	require.Equal(t, []int{3, 2}, []int{cap(text), cap(aux)}, "appending to a view must not write to the arena")
	r.Advance()

	s, _, _, ok = r.Peek()
	require.True(t, ok)
	require.Equal(t, Slot{Token: 8, Flags: FlagFinish, Finish: 3}, s, "payload fields of the caller are ignored")
	r.Advance()
	r.Advance() // nothing left: no effect
	_, _, _, ok = r.Peek()
	require.False(t, ok)
	require.Equal(t, 0, r.Len())
}

func TestReserveIsForPushReservedAlone(t *testing.T) {
	r := newRing(t, Config{Slots: 6, Reserve: 2})
	require.Equal(t, 6, r.Cap())
	for i := range 6 {
		require.True(t, r.TryPush(Slot{Token: int32(i)}, nil, nil))
	}
	require.False(t, r.TryPush(Slot{}, nil, nil))
	require.True(t, r.PushReserved(Slot{Token: 6, Flags: FlagFinish}))
	require.True(t, r.PushReserved(Slot{Token: 7, Flags: FlagFinish}))
	require.False(t, r.PushReserved(Slot{}))
	require.Equal(t, Stats{Full: 2, HighWater: 8}, r.Stats())
	for i := range 8 {
		s, _, _, ok := r.Peek()
		require.True(t, ok)
		require.Equal(t, int32(i), s.Token)
		r.Advance()
	}
}

func TestSlotsRoundUpInFavourOfTryPush(t *testing.T) {
	for _, c := range []struct{ slots, reserve, total, limit int }{
		{0, 0, 64, 64}, {1, 0, 1, 1}, {1, 1, 2, 1}, {5, 1, 8, 7}, {64, 1, 128, 127},
	} {
		r := newRing(t, Config{Slots: c.slots, Reserve: c.reserve})
		require.Equal(t, []int{c.total, c.limit}, []int{len(r.slots), r.Cap()}, "%+v", c)
	}
}

func TestArenaRefusesWhatDoesNotFit(t *testing.T) {
	r := newRing(t, Config{Slots: 64, ArenaBytes: 64})
	require.False(t, r.TryPush(Slot{}, make([]byte, 10), make([]byte, 7)), "over MaxPayload")
	for range 4 {
		require.True(t, r.TryPush(Slot{}, make([]byte, 16), nil))
	}
	require.False(t, r.TryPush(Slot{}, []byte("x"), nil))
	require.True(t, r.TryPush(Slot{}, nil, nil), "no payload, no arena")
	r.Advance()
	require.True(t, r.TryPush(Slot{}, []byte("x"), nil))

	none := newRing(t, Config{})
	require.Equal(t, 0, none.MaxPayload())
	require.False(t, none.TryPush(Slot{}, []byte("x"), nil))
	require.True(t, none.TryPush(Slot{}, nil, nil))
}

func TestCloseEndsTheStreamAfterItsRecords(t *testing.T) {
	r := newRing(t, Config{})
	cause := errors.New("device lost")
	require.True(t, r.TryPush(Slot{Token: 1}, nil, nil))
	r.Close(cause)
	r.Close(nil) // the first wins
	require.False(t, r.TryPush(Slot{}, nil, nil))
	require.False(t, r.PushReserved(Slot{}))
	require.Equal(t, uint64(0), r.Stats().Full, "closed is not full")

	done, err := r.Done()
	require.False(t, done)
	require.NoError(t, err)
	r.Advance()
	done, err = r.Done()
	require.True(t, done)
	require.Equal(t, cause, err)
}

func TestMetaSurvivesTheRegion(t *testing.T) {
	want := Meta{
		RequestID: "req-1", Tenant: "acme", Deadline: time.Unix(1, 2),
		TraceID: [16]byte{1, 15: 16}, SpanID: [8]byte{2, 7: 8}, TraceFlags: 1,
	}
	r := newRing(t, Config{Meta: want})
	require.Equal(t, want, r.Meta())
	require.Equal(t, Meta{}, newRing(t, Config{}).Meta())

	cut := newRing(t, Config{Meta: Meta{RequestID: strings.Repeat("a", 126) + "é" + "z", Tenant: strings.Repeat("b", 125) + "😀"}}).Meta()
	require.Equal(t, Meta{RequestID: strings.Repeat("a", 126) + "é", Tenant: strings.Repeat("b", 125)}, cut)
	junk := newRing(t, Config{Meta: Meta{Tenant: strings.Repeat("\x80", 300)}}).Meta()
	require.LessOrEqual(t, len(junk.Tenant), nameBytes)
}

func TestBadConfigsAreRefused(t *testing.T) {
	for _, cfg := range []Config{
		{Slots: -1}, {Slots: maxSlots + 1}, {Reserve: -1}, {Reserve: maxSlots + 1},
		{ArenaBytes: -1}, {ArenaBytes: maxArenaBytes + 1},
	} {
		_, err := New(cfg)
		require.ErrorIs(t, err, ErrConfig, "%+v", cfg)
	}
}

// testMemory is an allocator with faults that remembers what it lent.
type testMemory struct {
	err         error
	skew, short int
	lent, freed [][]byte
}

func (m *testMemory) Alloc(bytes int) ([]byte, error) {
	if m.err != nil {
		return nil, m.err
	}
	b, _ := HeapAllocator{}.Alloc(bytes + 64)
	for i := range b {
		b[i] = 0xFF // memory that was in use before
	}
	b = b[m.skew : m.skew+bytes-m.short]
	m.lent = append(m.lent, b)
	return b, nil
}

func (m *testMemory) Free(b []byte) { m.freed = append(m.freed, b) }

func TestMemoryIsGivenBackExactlyOnce(t *testing.T) {
	m := &testMemory{}
	r, err := New(Config{Memory: m, ArenaBytes: 100})
	require.NoError(t, err)
	require.NoError(t, r.check(), "dirty memory is cleared")
	require.Equal(t, slotsOff+64*slotBytes+128, len(m.lent[0]))
	r.Free()
	r.Free()
	require.Len(t, m.freed, 1)
	require.Equal(t, unsafe.SliceData(m.lent[0]), unsafe.SliceData(m.freed[0]))
}

func TestUnusableMemoryIsRefused(t *testing.T) {
	gone := errors.New("no pages left")
	_, err := New(Config{Memory: &testMemory{err: gone}})
	require.ErrorIs(t, err, gone)
	for _, m := range []*testMemory{{skew: 8}, {short: 1}} {
		_, err := New(Config{Memory: m})
		require.ErrorIs(t, err, ErrConfig)
		require.Len(t, m.freed, 1)
	}
}

func TestTokenPathDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	r := newRing(t, Config{Slots: 8, ArenaBytes: 256})
	text, aux := []byte("token"), []byte("logprobs")
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		r.Park()
		for r.TryPush(Slot{Token: 1}, text, aux) {
		}
		r.ArmSpace()
		<-r.Wake()
		r.Unpark()
		for {
			if _, _, _, ok := r.Peek(); !ok {
				break
			}
			r.Advance()
		}
		<-r.Space()
	}))
}
