package haiku

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/intelliparadigm/haiku/internal/ring"
)

// NoToken is the [Piece] ID of text that has no number in a vocabulary.
const NoToken int32 = -1

// Limits of what one stream accepts, so that its memory is bounded.
const (
	maxChoices   = 1 << 10
	maxStops     = 1 << 7
	maxStopBytes = 1 << 12
	arenaBytes   = 4 << 10
)

// Memory is where streams keep their rings. The default is the Go heap; an
// executor may offer memory that its device writes directly.
type Memory = ring.Allocator

// StreamOptions are the policy of a route's streams. The zero value has sane
// defaults; see [Streaming].
type StreamOptions struct {
	// Buffer is how many tokens may be ready and unread before the producer
	// pauses; 0 means 64, less one for the end of each choice. Together with
	// those ends it is rounded up to a power of two.
	Buffer int
	// StallLimit ends a stream with [ErrSlowReader] when its producer has been
	// paused this long by a reader that does not keep up. 0 lets it pause for
	// as long as WriteTimeout allows.
	StallLimit time.Duration
	// WriteTimeout is the deadline of each flush to the client; 0 means 30 s,
	// negative none.
	WriteTimeout time.Duration
	// Keepalive is the longest silence on an open event stream before a
	// comment is sent; 0 means 15 s, negative none.
	Keepalive time.Duration
	// OpenAfter is how long the status may wait for the first token. When it
	// has passed, the stream opens with status 200 and keepalive comments, and
	// a later failure becomes an error event. 0 means the Keepalive interval,
	// negative waits for the first token.
	OpenAfter time.Duration
}

// StreamWriter is one answer on its way: a [Model] pushes pieces in at one end
// and one reader, [Context.Stream] or a loop over [StreamWriter.Tokens], takes
// tokens out at the other. Between them lies a bounded ring without locks.
//
// The Model runs in a goroutine that begins when reading begins and that the
// reader waits for; a StreamWriter nobody reads holds nothing. A stream is read
// once. The methods say which end may call them.
type StreamWriter struct {
	req    *Request
	model  Model
	ctx    context.Context
	parent <-chan struct{} // closed when the context ends that ctx is made from
	cancel context.CancelCauseFunc
	opts   StreamOptions
	branch *Branch // whose writer this is, nil for a stream

	started   atomic.Bool
	done      chan struct{} // closed when the Model has returned
	ring      *ring.Ring
	served    atomic.Pointer[string]
	headersMu sync.Mutex
	headers   []string // names and values in turns
	begun     bool     // the response has its headers
	degraded  atomic.Bool
	vocab     *Vocabulary // set before the first push
	usage     Usage       // set before the ring closes
	recalled  recalled    // instead of ring, where the model had the answer

	// The producer's side.
	ended   bool // by End
	choices []choice
	toEnd   atomic.Int32  // choices that have not finished
	aux     []byte        // reused for deltas and log-probabilities
	members *memberReader // nil until there is a delta
	onSpace func()
	space   chan struct{}
	stalled atomic.Bool
	stall   *time.Timer
}

// choice is what the producer knows of one answer.
type choice struct {
	stop     stopMatcher
	finished bool
}

// Piece is what a [Model] adds to a stream in one step of one choice.
type Piece struct {
	// Choice is the index of the answer, from 0.
	Choice int
	// ID is the token in the stream's [Vocabulary], or [NoToken], in which
	// case Text is the text.
	ID   int32
	Text string
	// Logprob is the token's own, with its alternatives in Top, when the
	// request asks for it. It is copied.
	Logprob *TokenLogprob
	// Delta is what the choice's delta says beside its text; see [Token]. It
	// passes by stop strings and text that has to wait, and is copied. Members
	// named content and role belong to the stream, and are refused like what is
	// not JSON, or more than 1 MiB: they end the stream with an error.
	Delta []byte
	// Finish is set when this is the choice's last piece.
	Finish FinishReason
}

// PushResult says what became of a [Piece].
type PushResult uint8

// The fates of a Piece.
const (
	// Pushed: the piece is in the ring.
	Pushed PushResult = iota
	// Full: the reader is behind. Push the same piece again after the function
	// given to OnSpace has been called.
	Full
	// Stopped: the choice is finished, by a stop string that this piece
	// completes or earlier. Make no more tokens for it.
	Stopped
	// Gone: the reader has left or the context has ended.
	Gone
)

// NewStream prepares an answer to req from m. Nothing runs before the stream
// is read; ctx bounds the whole of it.
func NewStream(ctx context.Context, m Model, req *Request) *StreamWriter {
	r := *req
	if r.ID == "" {
		r.ID = newRequestID()
	}
	if id := IdentityFrom(ctx); id.Tenant != "" {
		r.Tenant = id.Tenant
	}
	if r.Objective == (Objective{}) {
		r.Objective = ObjectiveFrom(ctx)
	}
	return &StreamWriter{req: &r, model: m, ctx: ctx, opts: StreamOptionsFrom(ctx)}
}

// FailedStream is a stream that ends with err when it is read.
func FailedStream(ctx context.Context, err error) *StreamWriter {
	fail := func(context.Context, *StreamWriter, *Request) error { return err }
	return NewStream(ctx, ModelFunc(fail), &Request{})
}

func newRequestID() string {
	var b [12]byte
	rand.Read(b[:]) // never fails: it aborts the program when the system has no randomness
	return "req-" + hex.EncodeToString(b[:])
}

// Request is what the stream answers. Neither end may change it.
func (w *StreamWriter) Request() *Request { return w.req }

// start begins the generation. Only the first call succeeds.
func (w *StreamWriter) start() error {
	if !w.started.CompareAndSwap(false, true) {
		return errors.New("haiku: a stream can be read only once")
	}
	if err := w.check(); err != nil {
		return err
	}
	if w.recall() {
		return nil
	}
	if err := w.prepare(); err != nil {
		return err
	}
	w.parent = w.ctx.Done()
	w.ctx, w.cancel = context.WithCancelCause(w.ctx)
	w.done = make(chan struct{})
	go w.generate()
	return nil
}

// check refuses what would take more memory than a stream may, and what is not
// for the model.
func (w *StreamWriter) check() error {
	if w.req.Choices > maxChoices {
		return ErrInvalidRequest.With("n", "at most %d choices can be asked for", maxChoices)
	}
	if len(w.req.Stop) > maxStops {
		return ErrInvalidRequest.With("stop", "at most %d stop strings can be given", maxStops)
	}
	for i, s := range w.req.Stop {
		if s == "" || len(s) > maxStopBytes || !utf8.ValidString(s) {
			return ErrInvalidRequest.With(fmt.Sprintf("stop[%d]", i),
				"a stop string must be UTF-8 of 1 to %d bytes", maxStopBytes)
		}
	}
	if err := checkExtensions(w.req); err != nil {
		return err
	}
	return TakesExtensions(w.model, w.req)
}

// prepare makes what lies between the model and the reader.
func (w *StreamWriter) prepare() error {
	n := max(w.req.Choices, 1)
	rules := newStopRules(w.req.Stop)
	w.choices = make([]choice, n)
	w.toEnd.Store(int32(n))
	for i := range w.choices {
		w.choices[i].stop = newStopMatcher(rules)
	}
	w.space = make(chan struct{}, 1)
	var err error
	w.ring, err = ring.New(ring.Config{
		Slots: w.bufferTokens(n), Reserve: n, ArenaBytes: arenaBytes,
		Memory: w.memory(), Meta: w.meta(), OnSpace: w.spaceFreed,
	})
	if err != nil {
		return ErrOverloaded.Because(err)
	}
	return nil
}

func (w *StreamWriter) bufferTokens(choices int) int {
	if w.opts.Buffer <= 0 {
		return max(64-choices, 1)
	}
	return min(w.opts.Buffer, 1<<16)
}

// memory asks the model where its device can write; nil is the Go heap.
func (w *StreamWriter) memory() Memory {
	type device interface{ StreamMemory() Memory }
	if d, ok := ModelAs[device](w.model); ok {
		return d.StreamMemory()
	}
	return nil
}

func (w *StreamWriter) meta() ring.Meta {
	m := ring.Meta{RequestID: w.req.ID, Tenant: w.req.Tenant}
	m.Deadline, _ = w.ctx.Deadline()
	t := traceFrom(w.ctx)
	m.TraceID, m.SpanID, m.TraceFlags = t.trace, t.span, t.flags
	return m
}

// SetVocabulary names the vocabulary that the pieces' ids refer to. The Model
// calls it before its first push.
func (w *StreamWriter) SetVocabulary(v *Vocabulary) { w.vocab = v }

// SetModel names the model that serves, where it may differ from the one asked
// for. The Model calls it before its first push.
func (w *StreamWriter) SetModel(name string) { w.served.Store(&name) }

// SetHeader sets a header of the HTTP response that tells something about the
// answer, such as where it came from. The Model calls it before its first push;
// a response that has begun keeps the headers that it has.
func (w *StreamWriter) SetHeader(name, value string) {
	name = http.CanonicalHeaderKey(name)
	w.headersMu.Lock()
	defer w.headersMu.Unlock()
	if w.begun {
		return
	}
	for i := 0; i < len(w.headers); i += 2 {
		if w.headers[i] == name {
			w.headers[i+1] = value
			return
		}
	}
	if w.headers == nil {
		w.headers = make([]string, 0, 4)
	}
	w.headers = append(w.headers, name, value)
}

// Headers returns the headers set so far, names and values in turns. A Model that
// reads another's stream finds those of the answer with its first token.
func (w *StreamWriter) Headers() []string {
	w.headersMu.Lock()
	defer w.headersMu.Unlock()
	return slices.Clone(w.headers)
}

// SetDegraded says that the answer is not what the model asked for would give,
// as one by a model that stands in for it: good for this client now, and not to
// be kept. The Model calls it before its first push.
func (w *StreamWriter) SetDegraded() { w.degraded.Store(true) }

// Degraded reports whether SetDegraded was called. It is known with the first
// token.
func (w *StreamWriter) Degraded() bool { return w.degraded.Load() }

// copyHeaders gives the headers set so far to a response.
func (w *StreamWriter) copyHeaders(to http.Header) {
	w.headersMu.Lock()
	defer w.headersMu.Unlock()
	w.begun = true
	for i := 0; i < len(w.headers); i += 2 {
		to[w.headers[i]] = w.headers[i+1 : i+2 : i+2]
	}
}

// SetUsage records what has been used so far. The Model calls it before it
// returns, also when it fails.
func (w *StreamWriter) SetUsage(u Usage) { w.usage = u }

// OnSpace sets the function that is called, on the reader's goroutine, when
// there is room again after a push returned Full. The function must not block.
// The Model sets it before its first push.
func (w *StreamWriter) OnSpace(f func()) { w.onSpace = f }

// Model is the name of the model that serves, as far as is known.
func (w *StreamWriter) Model() string {
	if name := w.served.Load(); name != nil {
		return *name
	}
	if w.req.Model == "" && w.branch != nil {
		return w.branch.as
	}
	return w.req.Model
}

// Usage is what the answer used. It may be asked for once the stream has been
// read to its end or left.
func (w *StreamWriter) Usage() Usage { return w.usage }
