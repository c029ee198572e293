package batch

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Result is the answer to one request.
type Result[Resp any] struct {
	Value Resp
	Err   error // of this request alone
}

// Func computes a batch: one result per request, in their order, or an error
// for all of them. It is called on up to Options.Workers goroutines at a time.
// ctx ends when no request of the batch is wanted any more or the bound of
// Shutdown is over, and after the call; it carries no values and no deadline,
// since those of the requests differ. The slice is the function's only during
// the call. A panic or runtime.Goexit fails the batch like an error.
type Func[Req, Resp any] func(ctx context.Context, reqs []Req) ([]Result[Resp], error)

const (
	defaultMaxDelay     = 5 * time.Millisecond
	defaultMaxBatchSize = 32
	maxBatchSize        = 1 << 20
)

// Options shape a [DynamicBatcher]. The zero value merges up to 32 requests,
// waits up to 5 ms where that is worthwhile, and makes one call at a time.
type Options struct {
	// MaxDelay bounds how long a request waits for others while a worker is
	// idle. Zero means 5 ms; negative means that no request ever waits so.
	MaxDelay time.Duration
	// MaxBatchSize bounds the requests of one call, at most 1,048,576. Zero means
	// 32.
	MaxBatchSize int
	// PreferredSizes are sizes at which a batch starts at once, and to which a
	// longer queue is cut: the largest that fits is taken.
	PreferredSizes []int
	// Fixed turns the adaptive window off: a batch that is neither full nor of
	// a preferred size always waits for MaxDelay.
	Fixed bool
	// Workers is how many calls may run at a time. Zero means 1.
	Workers int
	// Levels are the priority levels, the most urgent first; requests of one are
	// taken before those of the next. None means one level with no limits.
	Levels []Level
	// Ordered holds an answer back until all requests submitted before it have
	// theirs, or have left by cancellation or queue timeout.
	Ordered bool
	// SplitOnFailure says that the function may be called again with requests of
	// a call that failed, since it has no effects or only idempotent ones. A batch
	// whose call fails as a whole is then halved and tried again, down to single
	// requests, so that only the guilty ones fail. A wrong number of results is
	// not tried again.
	SplitOnFailure bool
}

// Level is the queue policy of one priority level.
type Level struct {
	// MaxQueue is how many requests may wait; more are refused with a
	// *QueueFullError. Zero means no limit.
	MaxQueue int
	// Timeout is how long a request may wait, 0 for any time. No request times
	// out while a worker is idle: it is served instead.
	Timeout time.Duration
	// OnTimeout is what then happens.
	OnTimeout TimeoutAction
	// IgnoreOwnTimeout makes Call.Timeout void. Otherwise a request may ask for
	// a timeout shorter than the level's.
	IgnoreOwnTimeout bool
}

// TimeoutAction is what happens to a request whose queue timeout is over.
type TimeoutAction int

const (
	// Reject answers with a *QueueTimeoutError.
	Reject TimeoutAction = iota
	// Delay lets the request wait on, behind all those of its level whose
	// timeout is not over.
	Delay
)

// Call is what a single request may ask for.
type Call struct {
	// Priority is the index of a level, 0 for the most urgent.
	Priority int
	// Timeout shortens the level's queue timeout. Zero leaves that as it is.
	Timeout time.Duration
}

// filled returns o with defaults in place, or what is wrong with it.
func (o Options) filled() (Options, error) {
	if o.MaxBatchSize == 0 {
		o.MaxBatchSize = defaultMaxBatchSize
	}
	if o.Workers == 0 {
		o.Workers = 1
	}
	if o.MaxDelay == 0 {
		o.MaxDelay = defaultMaxDelay
	}
	if len(o.Levels) == 0 {
		o.Levels = make([]Level, 1)
	}
	o.Levels = slices.Clone(o.Levels)
	o.PreferredSizes = slices.Clone(o.PreferredSizes)
	slices.Sort(o.PreferredSizes)
	return o, o.check()
}

func (o Options) check() error {
	if o.MaxBatchSize > maxBatchSize {
		return fmt.Errorf("batch: MaxBatchSize %d: at most %d", o.MaxBatchSize, maxBatchSize)
	}
	if o.MaxBatchSize < 0 || o.Workers < 0 {
		return fmt.Errorf("batch: MaxBatchSize %d, Workers %d: must not be negative", o.MaxBatchSize, o.Workers)
	}
	for _, size := range o.PreferredSizes {
		if size < 1 || size > o.MaxBatchSize {
			return fmt.Errorf("batch: preferred size %d is not in 1 to %d", size, o.MaxBatchSize)
		}
	}
	for i, level := range o.Levels {
		if level.MaxQueue < 0 || level.Timeout < 0 || level.OnTimeout != Reject && level.OnTimeout != Delay {
			return fmt.Errorf("batch: level %d: negative limit or unknown action: %+v", i, level)
		}
	}
	return nil
}

// timeout returns the queue timeout of a request with its own wish, 0 for none.
func (l Level) timeout(own time.Duration) time.Duration {
	if own <= 0 || l.IgnoreOwnTimeout || l.Timeout > 0 && own > l.Timeout {
		return l.Timeout
	}
	return own
}
