package ring

import (
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// The region, in native byte order (little-endian wherever a device shares it).
// Lines are 128 bytes: two cache lines, since processors fetch them in pairs.
//
//	offset  bytes            what                    written by
//	0       384              header                  New, never again
//	384     128              producer line: tail     producer
//	512     128              consumer line: head     consumer
//	640     128              signal line: flags      either side, seldom
//	768     32 · slots       slots                   producer
//	…       arena bytes      arena                   producer
//
// Indexes count slots and bytes since the start and never wrap: at 10⁹ tokens
// a second 64 bits last 584 years. Slot i lies at i mod slots, byte b of the
// arena at b mod its size.
const (
	regionAlign = 64
	lineBytes   = 128
	headerBytes = 3 * lineBytes
	producerOff = headerBytes
	consumerOff = producerOff + lineBytes
	signalOff   = consumerOff + lineBytes
	slotsOff    = signalOff + lineBytes
	slotBytes   = 32

	regionMagic   = 0x676e5248 // "HRng"
	regionVersion = 1
	nameBytes     = 128 // room for RequestID and for Tenant
)

// layout holds the sizes and offsets that depend on the Config, in bytes
// except for slots.
type layout struct{ slots, arenaOff, arenaBytes, bytes int }

// Flags of a Slot.
const (
	FlagFinish uint8 = 1 << iota // the choice ends with this slot; Finish says why
	FlagText                     // the arena holds text; set by TryPush
	FlagAux                      // the arena holds aux bytes; set by TryPush
	FlagUser                     // for the ring's users to give a meaning
)

// NoToken is the Token of a slot that carries text, or a finish, and no
// vocabulary id.
const NoToken int32 = -1

// Slot is one record of the queue: 32 bytes of plain data at these offsets.
//
//	0  Token     4  Logprob   8  ArenaOff  12 TextLen
//	16 AuxLen    20 Drop      24 Choice    26 Hold
//	28 Flags     29 Finish    30 zero
type Slot struct {
	Token    int32   // vocabulary id, or NoToken
	Logprob  float32 // natural logarithm of the token's probability
	ArenaOff uint32  // set by TryPush: offset of the text in the arena, aux follows it
	TextLen  uint32  // set by TryPush: bytes of text
	AuxLen   uint32  // set by TryPush: bytes of aux
	Drop     uint32  // at a finish: bytes to discard from the end of the unreleased text
	Choice   uint16  // index of the choice the record belongs to
	Hold     uint16  // trailing bytes not to be released yet after this slot
	Flags    uint8   // FlagFinish, FlagText, FlagAux, FlagUser
	Finish   uint8   // finish reason, numbered by the ring's users; with FlagFinish
	_        [2]uint8
}

// payload returns the arena bytes the slot owns.
func (s *Slot) payload() uint64 { return uint64(s.TextLen) + uint64(s.AuxLen) }

// producerLine is written by the producer on every push.
type producerLine struct {
	tail      atomic.Uint64 // slots pushed
	arenaTail atomic.Uint64 // arena bytes pushed, skipped ends included
	_         [lineBytes - 16]byte
}

// consumerLine is written by the consumer on every advance.
type consumerLine struct {
	head      atomic.Uint64 // slots read
	arenaHead atomic.Uint64 // arena bytes given back, skipped ends included
	_         [lineBytes - 16]byte
}

// signalLine is read on every push and advance and written only around sleeps
// and at the end, so that both sides keep it in their caches.
type signalLine struct {
	parked atomic.Uint32 // 1: the consumer sleeps, or is about to
	armed  atomic.Uint32 // 1: the producer waits for space
	closed atomic.Uint32 // isOpen, isClosing or isClosed
	_      [lineBytes - 12]byte
}

// The life of signalLine.closed. isClosing guards the write of Ring.err.
const (
	isOpen uint32 = iota
	isClosing
	isClosed
)

// header is the fixed head of the region.
type header struct {
	magic, version       uint32
	slots, reserve       uint32
	slotsOff             uint32
	arenaOff, arenaBytes uint32
	traceFlags           uint8
	requestLen           uint8 // bytes of requestID in use
	tenantLen            uint8 // bytes of tenant in use
	_                    uint8
	deadline             int64 // Unix nanoseconds, 0: none
	traceID              [16]byte
	spanID               [8]byte
	_                    [lineBytes - 64]byte
	requestID            [nameBytes]byte
	tenant               [nameBytes]byte
}

// Meta is what a device or a debugger can learn about a ring's request from
// the region alone.
type Meta struct {
	RequestID  string    // kept up to 128 bytes, cut between characters
	Tenant     string    // likewise
	Deadline   time.Time // zero: none; kept to the nanosecond, years 1678 to 2262
	TraceID    [16]byte  // W3C trace context
	SpanID     [8]byte
	TraceFlags byte
}

// write fills the head from the plan.
func (h *header) write(lay layout, cfg Config) {
	h.magic, h.version = regionMagic, regionVersion
	h.slots, h.reserve = uint32(lay.slots), uint32(cfg.Reserve)
	h.slotsOff = slotsOff
	h.arenaOff, h.arenaBytes = uint32(lay.arenaOff), uint32(lay.arenaBytes)
	h.traceID, h.spanID, h.traceFlags = cfg.Meta.TraceID, cfg.Meta.SpanID, cfg.Meta.TraceFlags
	if !cfg.Meta.Deadline.IsZero() {
		h.deadline = cfg.Meta.Deadline.UnixNano()
	}
	h.requestLen = putName(&h.requestID, cfg.Meta.RequestID)
	h.tenantLen = putName(&h.tenant, cfg.Meta.Tenant)
}

// meta decodes what write stored.
func (h *header) meta() Meta {
	m := Meta{
		RequestID:  string(h.requestID[:h.requestLen]),
		Tenant:     string(h.tenant[:h.tenantLen]),
		TraceID:    h.traceID,
		SpanID:     h.spanID,
		TraceFlags: h.traceFlags,
	}
	if h.deadline != 0 {
		m.Deadline = time.Unix(0, h.deadline)
	}
	return m
}

// putName copies as many whole characters of name as fit and returns their
// length in bytes.
func putName(dst *[nameBytes]byte, name string) uint8 {
	if len(name) > nameBytes {
		n := nameBytes
		for n > nameBytes-utf8.UTFMax && !utf8.RuneStart(name[n]) {
			n--
		}
		name = name[:n]
	}
	return uint8(copy(dst[:], name))
}
