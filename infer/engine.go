package infer

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/batch"
)

// Options shape an [Engine]. The zero value is ready to use.
type Options struct {
	// Name is the model's name on the wire; empty takes it from the file.
	Name string
	// MaxSequences is how many choices run at once, at most half of
	// MaxBatchTokens; 0 means 32.
	MaxSequences int
	// MaxBatchTokens bounds the tokens of one step over all sequences, and so
	// how long a prompt can hold up the others' next token; 0 means 256.
	MaxBatchTokens int
	// MaxQueued is how many requests, embeddings among them, may wait to run
	// before more are refused with haiku.ErrTooBusy; 0 means 1024.
	MaxQueued int
	// MaxQueuedTokens bounds the prompts of those that wait likewise, together;
	// 0 means no bound. Neither bound counts those whose adapters are on their
	// way, which MaxQueued bounds by themselves.
	MaxQueuedTokens int
	// AdapterBytes bounds the memory of the adapters that are loaded when they
	// are needed, see Engine.OfferAdapter; 0 means no bound.
	AdapterBytes int64
	// QueueTimeout is how long a request may wait for its first step until it is
	// refused with haiku.ErrTooBusy; 0 means for ever. One that would miss its
	// own objective is refused as it comes.
	QueueTimeout time.Duration
	// NoPrefixCache computes every prompt anew, also where its beginning was
	// computed before for the same tenant.
	NoPrefixCache bool
	// ChatTemplate replaces the template in the file.
	ChatTemplate string
	// Logger is told about failures of the executor; nil is slog's default.
	Logger *slog.Logger
}

// Engine is a [haiku.Model] over an [Executor]: it turns requests into
// prompts, runs many of them in one continuous batch, samples and pushes each
// token into its request's stream. All methods may be called concurrently.
//
// One goroutine, the loop, owns the executor, the sequences and the KV blocks.
// Close stops it and waits for it.
type Engine struct {
	exec   Executor
	spec   Spec
	opts   Options
	text   *prompter
	unload func() error // closes what the executor's weights lie in

	mu     sync.Mutex
	life   engineLife
	queued map[*job]bool // jobs that wait
	inbox  []*job        // those that the loop has not taken in yet
	gone   []*job        // those that ended while they waited, and that the loop has to forget
	active int           // jobs submitted and not done
	idle   chan struct{} // closed when no job is left after draining began
	live   int           // jobs of the running step that somebody waits for
	stats  Stats         // as the loop last published them
	held   int           // of queued, those that wait for their adapters

	idleSince time.Time // when the loop began to wait for work, zero while it works

	admission batch.Admission
	load      batch.Backlog // what runs, as the loop last weighed it

	adapters     map[string]*adapter // those being loaded too
	lastAdapter  AdapterID
	adapterBytes int64         // of the budget, taken
	roomier      chan struct{} // closed, and made anew, when an adapter has no user left
	freed        []*job        // those whose adapters have come, for the loop
	loadCtx      context.Context
	stopLoads    context.CancelFunc
	loads        sync.WaitGroup // loading and unloading of adapters, begun before Close

	stepCtx context.Context
	cancel  context.CancelFunc // of stepCtx

	wake     chan struct{} // capacity 1: the loop should look again
	stopped  chan struct{} // closed by the loop's end
	closing  sync.Once
	closeErr error

	loopState
}

// engineLife moves from accepting over draining to killed.
type engineLife uint8

const (
	accepting engineLife = iota
	draining             // finishes what it has, refuses what comes
	killed               // drops what it has
)

// New returns an Engine over exec, which it owns from now on and closes. If it
// fails, exec is still the caller's.
func New(exec Executor, text Text, opts Options) (*Engine, error) {
	spec := exec.Spec()
	if spec.VocabSize <= 0 || spec.ContextTokens <= 0 || spec.BlockTokens <= 0 || spec.Blocks <= 0 {
		return nil, fmt.Errorf("%w: the executor's spec has a size of zero: %+v", ErrUnsupportedModel, spec)
	}
	prompter, err := newPrompter(text, spec.VocabSize)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		exec: exec, spec: spec, opts: opts.withDefaults(spec), text: prompter,
		unload:  func() error { return nil },
		queued:  make(map[*job]bool),
		roomier: make(chan struct{}),
		idle:    make(chan struct{}),
		wake:    make(chan struct{}, 1),
		stopped: make(chan struct{}),
	}
	e.loopState = newLoopState(spec, &e.opts)
	e.loadCtx, e.stopLoads = context.WithCancel(context.Background())
	e.stepCtx, e.cancel = context.WithCancel(context.Background())
	go e.loop()
	return e, nil
}

// maxBatchTokens bounds Options.MaxBatchTokens: no device computes more at once.
const maxBatchTokens = 1 << 20

func (o Options) withDefaults(spec Spec) Options {
	if o.Name == "" {
		o.Name = "default"
	}
	if o.MaxBatchTokens <= 0 {
		o.MaxBatchTokens = 256
	}
	if spec.MaxBatchTokens > 0 {
		o.MaxBatchTokens = min(o.MaxBatchTokens, spec.MaxBatchTokens)
	}
	if o.MaxSequences <= 0 {
		o.MaxSequences = 32
	}
	o.MaxBatchTokens = min(o.MaxBatchTokens, maxBatchTokens)
	// Half of the budget is always there for prompts.
	o.MaxSequences = min(o.MaxSequences, max(o.MaxBatchTokens/2, 1))
	if o.MaxQueued <= 0 {
		o.MaxQueued = 1024
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// Name is the model's name on the wire.
func (e *Engine) Name() string { return e.opts.Name }

// Spec describes the executor.
func (e *Engine) Spec() Spec { return e.spec }

// HasChatTemplate reports whether the model can answer messages; without a
// template it only continues prompts.
func (e *Engine) HasChatTemplate() bool { return e.text.template != nil }

// StreamMemory is where the streams of this engine keep their rings: memory of
// the executor's choice if it has a method of this name, else the Go heap.
func (e *Engine) StreamMemory() haiku.Memory {
	if d, ok := e.exec.(interface{ StreamMemory() haiku.Memory }); ok {
		return d.StreamMemory()
	}
	return nil
}

// Generate answers req. Prompts are made on the caller's goroutine; the rest
// happens in the loop. See [haiku.Model] for the contract.
func (e *Engine) Generate(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
	a, id, err := e.use(req)
	if err != nil {
		return err
	}
	defer e.done(a)
	j, err := e.newJob(ctx, w, req)
	if err != nil {
		return err
	}
	if a != nil {
		j.adapter, j.adapterScale, j.wants = id, 1, a
		if s := req.AdapterScale; s != nil {
			j.adapterScale = float32(*s)
		}
		w.SetModel(a.name)
	}
	j.tenant, j.objective = req.Tenant, req.Objective
	err = e.run(j)
	w.SetUsage(j.usage)
	return err
}

// run submits j and waits for its end.
func (e *Engine) run(j *job) error {
	newSequences(j)
	j.lead().Hash(e.spec.BlockTokens)
	if err := e.submit(j); err != nil {
		return err
	}
	noticed := make(chan struct{})
	stop := context.AfterFunc(j.ctx, func() {
		defer close(noticed)
		e.abandon(j)
	})
	<-j.done
	if !stop() {
		<-noticed
	}
	return j.err
}

func (e *Engine) newJob(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) (*job, error) {
	if err := e.text.check(req); err != nil {
		return nil, err
	}
	if least := e.text.leastTokens(req); least > e.spec.ContextTokens {
		return nil, haiku.ErrContextLength.With(promptParam(req),
			"the prompt has more than %d tokens and the model's context holds %d", least, e.spec.ContextTokens)
	}
	prompt, err := e.text.prompt(ctx, req)
	if err != nil {
		return nil, err
	}
	limit, err := e.limit(len(prompt), req)
	if err != nil {
		return nil, err
	}
	j := &job{ctx: ctx, w: w, req: req, prompt: prompt, limit: limit, open: max(req.Choices, 1), done: make(chan struct{})}
	if s := req.Sampling.Seed; s != nil {
		j.seed = *s
	} else {
		var b [8]byte
		rand.Read(b[:])
		j.seed = binary.LittleEndian.Uint64(b[:])
	}
	w.SetVocabulary(e.text.vocab)
	w.SetModel(e.opts.Name)
	w.OnSpace(func() {
		j.room.Add(1)
		e.poke()
	})
	return j, nil
}

// limit is the most tokens each choice of req may have, prompt included. Any one
// of them has to fit into the KV blocks there are; together they take turns.
func (e *Engine) limit(promptTokens int, req *haiku.Request) (int, error) {
	context, room := e.spec.ContextTokens, e.spec.Blocks*e.spec.BlockTokens
	switch {
	case promptTokens >= context:
		return 0, haiku.ErrContextLength.With(promptParam(req),
			"the prompt has %d tokens and the model's context holds %d", promptTokens, context)
	case promptTokens >= room:
		return 0, haiku.ErrContextLength.With(promptParam(req),
			"the prompt has %d tokens and the KV cache holds %d", promptTokens, room)
	case req.MaxTokens > context-promptTokens:
		return 0, haiku.ErrContextLength.With("max_tokens",
			"the prompt has %d tokens, max_tokens asks for %d more and the model's context holds %d", promptTokens, req.MaxTokens, context)
	case req.MaxTokens > room-promptTokens:
		return 0, haiku.ErrContextLength.With("max_tokens",
			"the prompt has %d tokens, max_tokens asks for %d more and the KV cache holds %d", promptTokens, req.MaxTokens, room)
	case req.Choices > e.opts.MaxSequences:
		return 0, haiku.ErrInvalidRequest.With("n", "at most %d choices can be asked for", e.opts.MaxSequences)
	case req.MaxTokens == 0:
		return min(context, room), nil
	}
	return promptTokens + req.MaxTokens, nil
}

func (e *Engine) submit(j *job) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !j.embeds || e.life == killed { // else accepted before
		if err := e.accept(j, len(j.prompt)); err != nil {
			return err
		}
	}
	if err := e.await(j); err != nil {
		return err
	}
	e.queued[j] = true
	e.inbox = append(e.inbox, j)
	e.active++
	e.poke()
	return nil
}

// abandon tells the engine that j's context has ended. A job in the queue is
// done at once. A step that computes for nobody else any more is cancelled;
// otherwise the loop drops the job before its next step.
func (e *Engine) abandon(j *job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if j.stage == waiting {
		e.drop(j, j.ctx.Err())
		return
	}
	if j.stepping {
		j.stepping = false
		if e.live--; e.live == 0 {
			e.cancel()
		}
	}
	e.poke()
}

// drop ends a job that waits. The caller holds mu.
func (e *Engine) drop(j *job, err error) {
	if j.stage != waiting {
		return
	}
	if j.held {
		j.wants.waiting = slices.DeleteFunc(j.wants.waiting, func(other *job) bool { return other == j })
	}
	e.complete(j, err)
	e.gone = append(e.gone, j)
	e.poke()
}

// complete makes the end of j known. The caller holds mu.
func (e *Engine) complete(j *job, err error) {
	delete(e.queued, j)
	e.unhold(j)
	j.stage, j.err = over, err
	if n := j.usage.CompletionTokens; err == nil && n > 0 {
		e.admission.ObserveOutput(n / len(j.seqs))
	}
	close(j.done)
	e.left()
}

// left counts one active request less. The caller holds mu.
func (e *Engine) left() {
	if e.active--; e.active == 0 && e.life != accepting {
		close(e.idle)
	}
}

// poke makes the loop look again.
func (e *Engine) poke() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Shutdown refuses new requests, waits until those accepted are answered or
// ctx ends, and closes the engine. It returns ctx's error if requests had to
// be cut off.
func (e *Engine) Shutdown(ctx context.Context) error {
	e.mu.Lock()
	if e.life == accepting {
		e.life = draining
		if e.active == 0 {
			close(e.idle)
		}
	}
	e.mu.Unlock()
	var cut error
	select {
	case <-e.idle:
	case <-ctx.Done():
		select {
		case <-e.idle: // both, and nothing is cut off
		default:
			cut = ctx.Err()
		}
	}
	return errors.Join(cut, e.Close())
}

// Close ends all requests with haiku.ErrClosed, stops the loop after the step
// that runs, and frees the executor. Calls after the first wait for it and
// return the same error.
func (e *Engine) Close() error {
	e.closing.Do(func() {
		e.mu.Lock()
		if e.life == accepting && e.active == 0 {
			close(e.idle)
		}
		e.life = killed
		e.cancel()
		e.stopLoads()
		e.mu.Unlock()
		e.poke()
		<-e.stopped
		e.loads.Wait()
		e.closeErr = errors.Join(e.exec.Close(), e.unload())
	})
	return e.closeErr
}
