package batch

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// DynamicBatcher merges requests into batches. Its methods may be called from
// any number of goroutines.
//
// It runs one goroutine that waits for the clock and Options.Workers more that
// make the calls; all end with Close. Whoever changes what the window looks at
// (a request that comes or leaves, a worker that is done, the clock) asks the
// window again under the one lock, so a request reaches an idle worker without
// a detour.
type DynamicBatcher[Req, Resp any] struct {
	compute Func[Req, Resp]
	options Options
	window  Window
	epoch   time.Time

	base   context.Context // of all calls; ends with the bound of Shutdown
	cancel context.CancelFunc
	items  sync.Pool
	work   chan *run[Req, Resp] // of capacity Workers: sending never blocks
	wake   chan struct{}        // tells the dispatcher that its alarm is too late
	// stopped is closed when all goroutines are gone but the dispatcher itself,
	// whose last act it is.
	stopped chan struct{}
	workers sync.WaitGroup

	mu       sync.Mutex
	queue    queue[Req, Resp]
	order    list[Req, Resp] // all unanswered items, if Options.Ordered
	idle     []*run[Req, Resp]
	arrivals Arrivals
	cost     Cost
	count    counters
	alarm    time.Duration // when the dispatcher looks again, 0 for never
	holding  bool          // a window is open: a worker is idle and items wait
	closing  bool
	over     bool // closing, and nothing is left to do
}

// New starts a batcher for compute. Close must be called to end it.
func New[Req, Resp any](compute Func[Req, Resp], options Options) (*DynamicBatcher[Req, Resp], error) {
	o, err := options.filled()
	if err != nil {
		return nil, err
	}
	b := &DynamicBatcher[Req, Resp]{
		compute: compute,
		options: o,
		window:  Window{MaxDelay: o.MaxDelay, MaxBatchSize: o.MaxBatchSize, PreferredSizes: o.PreferredSizes, Fixed: o.Fixed},
		epoch:   time.Now(),
		work:    make(chan *run[Req, Resp], o.Workers),
		wake:    make(chan struct{}, 1),
		stopped: make(chan struct{}),
		queue:   newQueue[Req, Resp](len(o.Levels)),
	}
	b.order.place = func(it *item[Req, Resp]) *link[Req, Resp] { return &it.submitted }
	b.items.New = func() any { return &item[Req, Resp]{done: make(chan struct{}, 1)} }
	b.count.sizes = make([]uint64, o.MaxBatchSize+1)
	b.base, b.cancel = context.WithCancel(context.Background())
	b.start()
	return b, nil
}

func (b *DynamicBatcher[Req, Resp]) start() {
	for range b.options.Workers {
		b.idle = append(b.idle, &run[Req, Resp]{})
		b.workers.Add(1)
		go b.worker(nil)
	}
	go b.dispatcher()
}

// now returns the time since the batcher began, never 0, which means none.
func (b *DynamicBatcher[Req, Resp]) now() time.Duration { return time.Since(b.epoch) + 1 }

// Do submits req at the most urgent level and returns its answer. If ctx ends
// first, Do returns its error at once, and req is either not computed or its
// answer thrown away.
func (b *DynamicBatcher[Req, Resp]) Do(ctx context.Context, req Req) (Resp, error) {
	return b.DoWith(ctx, req, Call{})
}

// DoWith is Do with a priority and a queue timeout of the request's own.
func (b *DynamicBatcher[Req, Resp]) DoWith(ctx context.Context, req Req, call Call) (Resp, error) {
	var none Resp
	if err := ctx.Err(); err != nil {
		return none, err
	}
	it, err := b.submit(ctx, req, call)
	if err != nil {
		return none, err
	}
	select {
	case <-it.done:
	case <-ctx.Done():
		if !b.leave(it) {
			return none, ctx.Err()
		}
		<-it.done
	}
	res := it.res
	b.recycle(it)
	return res.Value, res.Err
}

// submit puts a request into the queue, and its batch on its way if it was the
// last one that was waited for.
func (b *DynamicBatcher[Req, Resp]) submit(ctx context.Context, req Req, call Call) (*item[Req, Resp], error) {
	if call.Priority < 0 || call.Priority >= len(b.options.Levels) {
		return nil, fmt.Errorf("%w: %d of %d", ErrPriority, call.Priority, len(b.options.Levels))
	}
	level := b.options.Levels[call.Priority]
	it := b.items.Get().(*item[Req, Resp])
	it.req, it.level, it.at = req, call.Priority, -1
	if deadline, ok := ctx.Deadline(); ok {
		it.deadline = max(after(deadline.Sub(b.epoch), 1), 1)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.refuse(call.Priority); err != nil {
		b.recycle(it)
		return nil, err
	}
	it.arrived = b.now()
	if timeout := level.timeout(call.Timeout); timeout > 0 {
		it.expires = after(it.arrived, timeout)
	}
	b.arrivals.Observe(it.arrived)
	b.queue.push(it)
	if b.options.Ordered {
		b.order.push(it)
	}
	b.proceed(it.arrived)
	return it, nil
}

// refuse returns why a request cannot be queued.
func (b *DynamicBatcher[Req, Resp]) refuse(level int) error {
	if b.closing {
		return ErrClosed
	}
	limit := b.options.Levels[level].MaxQueue
	if limit == 0 || b.queue.levels[level].size < limit {
		return nil
	}
	b.count.rejected++
	return &QueueFullError{Level: level, Limit: limit}
}

// leave takes an item whose context has ended out of wherever it is. It returns
// true if the answer was faster, and is then in done.
func (b *DynamicBatcher[Req, Resp]) leave(it *item[Req, Resp]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if it.status == answered {
		return true
	}
	b.count.cancelled++
	if b.options.Ordered {
		b.order.remove(it)
	}
	switch it.status {
	case waiting:
		b.queue.remove(it)
		b.recycle(it)
	case running:
		it.abandoned = true
		it.batch.leave()
	case held:
		b.recycle(it)
	}
	b.release()
	b.proceed(b.now())
	return false
}

// answer hands an item to the Do that waits for it.
func (b *DynamicBatcher[Req, Resp]) answer(it *item[Req, Resp]) {
	it.status = answered
	it.done <- struct{}{}
}

// release answers the items whose turn has come in the order of submission.
func (b *DynamicBatcher[Req, Resp]) release() {
	for it := b.order.first; it != nil && it.status == held; it = b.order.first {
		b.order.remove(it)
		b.answer(it)
	}
}

// recycle keeps an item, which nobody holds, for a later request.
func (b *DynamicBatcher[Req, Resp]) recycle(it *item[Req, Resp]) {
	*it = item[Req, Resp]{done: it.done}
	b.items.Put(it)
}

// Close refuses new requests, waits until the queued ones are answered, and for
// all goroutines to end.
func (b *DynamicBatcher[Req, Resp]) Close() error { return b.Shutdown(context.Background()) }

// Shutdown is Close with a bound. If ctx ends first, requests that still wait
// are answered with ErrClosed, the contexts of running calls end, and Shutdown
// returns the error of ctx without waiting for those calls; a later Close does.
func (b *DynamicBatcher[Req, Resp]) Shutdown(ctx context.Context) error {
	b.mu.Lock()
	b.closing = true
	b.proceed(b.now())
	b.mu.Unlock()
	select {
	case <-b.stopped:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return nil // only goroutines are left, and these are ending
	}
	for it := b.queue.next(); it != nil; it = b.queue.next() {
		b.dismiss(it, ErrClosed)
	}
	b.cancel()
	b.release()
	b.proceed(b.now())
	return ctx.Err()
}

// dismiss answers a waiting item with an error.
func (b *DynamicBatcher[Req, Resp]) dismiss(it *item[Req, Resp], err error) {
	b.queue.remove(it)
	if b.options.Ordered {
		b.order.remove(it)
	}
	it.res.Err = err
	b.answer(it)
}
