package ring

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// record is what the model queue holds for a slot.
type record struct {
	slot      Slot
	text, aux []byte
}

// model is a ring beside a plain slice that says what it must contain.
type model struct {
	t      require.TestingT
	r      *Ring
	queue  []record
	next   int32 // token of the next push
	closed bool
	err    error
	parked bool // Park returned true and nothing ended the sleep yet
	armed  bool // ArmSpace returned true and no wake-up came yet
	onRoom int  // calls of OnSpace
	stats  Stats
}

func newModel(t require.TestingT, slots, reserve, arenaBytes int) *model {
	m := &model{t: t}
	r, err := New(Config{Slots: slots, Reserve: reserve, ArenaBytes: arenaBytes, OnSpace: func() { m.onRoom++ }})
	require.NoError(t, err)
	m.r = r
	return m
}

// tryPush pushes a payload whose bytes tell where they belong.
func (m *model) tryPush(textLen, auxLen int) {
	m.next++
	fill := []byte{byte(m.next)}
	rec := record{Slot{Token: m.next, Choice: uint16(m.next % 3)}, bytes.Repeat(fill, textLen), bytes.Repeat(fill, auxLen)}
	liveBytes, all := 0, len(m.queue)
	for _, q := range m.queue {
		liveBytes += len(q.text) + len(q.aux)
	}
	roomy, size := m.r.roomy(), textLen+auxLen
	hasRoom := m.r.Room(size)
	ok := m.r.TryPush(rec.slot, rec.text, rec.aux)
	require.Equal(m.t, hasRoom, ok, "Room foretells TryPush")
	switch {
	case m.closed || all >= m.r.Cap() || size > m.r.MaxPayload() || liveBytes+size > len(m.r.arena):
		require.False(m.t, ok, "pushed %d bytes on %d records, %d bytes", size, all, liveBytes)
	case roomy || size == 0:
		require.True(m.t, ok, "room was promised")
	}
	m.pushed(rec, ok)
}

func (m *model) pushReserved() {
	m.next++
	rec := record{slot: Slot{Token: m.next, Flags: FlagFinish}}
	ok := m.r.PushReserved(rec.slot)
	require.Equal(m.t, !m.closed && len(m.queue) < len(m.r.slots), ok)
	m.pushed(rec, ok)
}

// pushed keeps the books after a push.
func (m *model) pushed(rec record, ok bool) {
	switch {
	case ok:
		m.queue = append(m.queue, rec)
		m.stats.HighWater = max(m.stats.HighWater, uint64(len(m.queue)))
		m.woken()
	case !m.closed:
		m.stats.Full++
	}
}

// woken accounts for the wake-up that a parked consumer gets.
func (m *model) woken() {
	if m.parked {
		m.parked = false
		m.stats.Wakeups++
		require.Len(m.t, m.r.Wake(), 1)
		m.r.Unpark()
	}
	require.Empty(m.t, m.r.Wake(), "awake: no wake-up")
}

func (m *model) read() {
	s, text, aux, ok := m.r.Peek()
	require.Equal(m.t, len(m.queue) > 0, ok)
	if ok {
		want := m.queue[0]
		require.Equal(m.t, []any{want.slot.Token, want.slot.Choice}, []any{s.Token, s.Choice})
		require.Equal(m.t, want.slot.Flags&FlagFinish, s.Flags&FlagFinish)
		require.True(m.t, bytes.Equal(want.text, text), "text of %d", s.Token)
		require.True(m.t, bytes.Equal(want.aux, aux), "aux of %d", s.Token)
		m.queue = m.queue[1:]
	}
	calls := m.onRoom
	m.r.Advance()
	if m.armed && m.r.roomy() {
		calls++
		m.stats.SpaceWakeups++
		m.armed = false
	}
	require.Equal(m.t, calls, m.onRoom)
}

func (m *model) park() {
	if m.parked {
		m.parked = false
		m.r.Unpark()
		return
	}
	m.parked = m.r.Park()
	require.Equal(m.t, len(m.queue) == 0 && !m.closed, m.parked)
}

func (m *model) arm() {
	roomy := m.r.roomy()
	require.True(m.t, roomy || len(m.queue) > 0, "an empty ring has room")
	m.armed = m.r.ArmSpace()
	require.Equal(m.t, !roomy, m.armed)
}

func (m *model) close(err error) {
	m.r.Close(err)
	if !m.closed {
		m.closed, m.err = true, err
		m.woken()
	}
}

// settle compares all that can be seen from outside, and the invariants.
func (m *model) settle() {
	require.NoError(m.t, m.r.check())
	require.Equal(m.t, len(m.queue), m.r.Len())
	require.Equal(m.t, m.stats, m.r.Stats())
	done, err := m.r.Done()
	require.Equal(m.t, m.closed && len(m.queue) == 0, done)
	if done {
		require.Equal(m.t, m.err, err)
	}
}

func TestRingBehavesAsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t,
			rapid.IntRange(1, 9).Draw(t, "slots"),
			rapid.IntRange(0, 3).Draw(t, "reserve"),
			rapid.SampledFrom([]int{0, 64, 128}).Draw(t, "arenaBytes"))
		defer m.r.Free()
		payload := rapid.IntRange(0, m.r.MaxPayload()/2+1)
		push := func(t *rapid.T) { m.tryPush(payload.Draw(t, "text"), payload.Draw(t, "aux")) }
		read := func(*rapid.T) { m.read() }
		t.Repeat(map[string]func(*rapid.T){
			"":             func(*rapid.T) { m.settle() },
			"push":         push,
			"pushAgain":    push, // twice as likely, to fill the ring
			"pushReserved": func(*rapid.T) { m.pushReserved() },
			"read":         read,
			"readAgain":    read,
			"park":         func(*rapid.T) { m.park() },
			"arm":          func(*rapid.T) { m.arm() },
			"close": func(t *rapid.T) {
				if rapid.IntRange(0, 19).Draw(t, "now") == 0 {
					m.close(errors.New("ended"))
				}
			},
		})
	})
}

// FuzzRing reads its input as a list of operations: the low three bits choose
// one, the others size its payload.
func FuzzRing(f *testing.F) {
	f.Add([]byte{}, uint8(4), uint8(1))
	f.Add([]byte("\x00\x08\xf8\xf9\x02\x03\x04\x02\x02\x02\x05"), uint8(1), uint8(0))
	f.Add(bytes.Repeat([]byte{0xf8, 0x79, 0x02, 0x00, 0x02, 0x06}, 40), uint8(7), uint8(2))
	f.Add([]byte("\x03\x00\x03\x00\x03\x02\x02\x03\x07\x00\x01\x02\x02"), uint8(2), uint8(1))
	f.Fuzz(func(t *testing.T, ops []byte, slots, reserve uint8) {
		m := newModel(t, int(slots%16)+1, int(reserve%4), 64)
		defer m.r.Free()
		for _, op := range ops {
			size := int(op >> 3) // up to 31; MaxPayload is 16
			switch op & 7 {
			case 0:
				m.tryPush(size/2, size/3)
			case 1:
				m.tryPush(0, size)
			case 2:
				m.read()
			case 3:
				m.park()
			case 4:
				m.arm()
			case 5:
				m.pushReserved()
			case 6:
				for len(m.queue) > 0 {
					m.read()
				}
			case 7:
				if size == 31 {
					m.close(nil)
				}
			}
			m.settle()
		}
	})
}
