package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/intelliparadigm/haiku/fallback"
	"github.com/intelliparadigm/haiku/internal/outage"
	"github.com/intelliparadigm/haiku/internal/redisclient"
)

var (
	// ErrOff is matched by the error of an exchange that was not tried, since the
	// server has been given up for now.
	ErrOff = outage.ErrOff
	// ErrClient is matched by the error of New for a client that does not end an
	// operation with its context.
	ErrClient = errors.New("redis: the client must be made with ContextTimeoutEnabled")
	// ErrInvalid is matched by the error of an exchange with a negative or absurdly
	// large count, or a window below a millisecond.
	ErrInvalid = errors.New("redis: invalid counts or window")

	errLate = errors.New("the server's clock does not stand still")
)

// maxDelta bounds a count, so that sums stay exact in the server's numbers.
const maxDelta = 1 << 40

var _ fallback.Counters = (*Counters)(nil)

// Counters are fallback.Counters on a Redis server. Their methods may be called
// from any number of goroutines; they start none and need no Close.
type Counters struct {
	client  goredis.UniversalClient
	options Options
	guard   *outage.Guard
	script  *goredis.Script
	clocks  sync.Map // name → moment
}

// moment is when, by the server's clock in milliseconds, it was what time here.
// Names may be on servers whose clocks differ.
type moment struct {
	server int64
	here   time.Time
}

// New returns Counters on client, which stays the caller's. It does not wait for
// the server.
func New(client goredis.UniversalClient, options Options) (*Counters, error) {
	if !redisclient.HeedsDeadlines(client) {
		return nil, ErrClient
	}
	o := options.withDefaults()
	return &Counters{
		client: client, options: o, script: goredis.NewScript(serverClock + exchangeScript),
		guard: outage.New(outage.Options{
			Deadline: o.Deadline, Failures: o.Failures, Pause: o.Pause, MaxPause: o.MaxPause, Well: redisclient.RefusesWrites,
		}),
	}, nil
}

// Exchange adds delta to what all replicas saw of name, and returns the sum over
// the last window, delta included, in one round trip (one more the first time).
// After an error nobody knows whether delta has been added. Counts are at most
// 2^40.
func (c *Counters) Exchange(ctx context.Context, name string, delta fallback.Counts, window time.Duration) (fallback.Counts, error) {
	x, err := c.newExchange(name, delta, window)
	if err == nil {
		err = c.guard.Do(ctx, x.run)
	}
	if err != nil {
		return fallback.Counts{}, fmt.Errorf("redis: counting %q: %w", name, err)
	}
	return x.sum, nil
}

// Stats is a snapshot of [Counters]. Counts are since their beginning.
type Stats struct {
	Errors   uint64 // exchanges that failed otherwise than by their deadline
	Timeouts uint64 // exchanges that ran into the Counters' own deadline
	Skipped  uint64 // exchanges not tried, since the server was given up
	Opened   uint64 // times that the server was given up
	Open     bool   // the server is given up now
}

// Stats returns a snapshot.
func (c *Counters) Stats() Stats { return Stats(c.guard.Stats()) }

// exchange is one call of Exchange.
type exchange struct {
	*Counters
	name string
	keys []string
	args []any // of the script; the deadline is filled in
	sum  fallback.Counts
}

// deadlineArg is the place of the deadline in the arguments.
const deadlineArg = 2

func (c *Counters) newExchange(name string, delta fallback.Counts, window time.Duration) (*exchange, error) {
	millis, buckets := window.Milliseconds(), int64(c.options.Buckets)
	if millis <= 0 {
		return nil, fmt.Errorf("%w: a window of %v", ErrInvalid, window)
	}
	width := (millis + buckets - 1) / buckets
	span := (millis + width - 1) / width
	x := &exchange{Counters: c, name: name}
	tag := c.options.hashTag(name)
	x.keys = []string{
		tag + "counts1:" + strconv.FormatInt(millis, 10) + "/" + strconv.FormatInt(width, 10),
		tag + "mark:" + strconv.FormatUint(rand.Uint64(), 36),
	}
	x.args = append(make([]any, 0, deadlineArg+3+counts), width, span, int64(0), c.markMillis(), (span+2)*width)
	return x, x.add(delta)
}

// markMillis is longer than a client retries.
func (c *Counters) markMillis() int64 { return (2*c.options.Deadline + time.Second).Milliseconds() }

// add puts delta at the end of the arguments, unless it is nothing.
func (x *exchange) add(delta fallback.Counts) error {
	if delta == (fallback.Counts{}) {
		return nil
	}
	for _, p := range fields(&delta) {
		if *p < 0 || *p > maxDelta {
			return fmt.Errorf("%w: a count of %d", ErrInvalid, *p)
		}
		x.args = append(x.args, *p)
	}
	return nil
}

// run asks the server, and once more if this side did not know its time.
func (x *exchange) run(ctx context.Context) error {
	for range 2 {
		begin := time.Now()
		x.args[deadlineArg] = x.deadline(begin)
		reply, err := x.script.Run(ctx, x.client, x.keys, x.args...).Int64Slice()
		if err != nil {
			return err
		}
		if len(reply) > 0 {
			x.clocks.Store(x.name, moment{reply[0], begin})
		}
		if len(reply) == 1+counts {
			for i, p := range fields(&x.sum) {
				*p = reply[1+i]
			}
			return nil
		}
	}
	return errLate
}

// deadline is the time of the server at which this side gives up, or 0 where
// that is unknown. It is rather late than early: at begin the server's clock
// stood no later than a moment's says.
func (x *exchange) deadline(begin time.Time) int64 {
	known, ok := x.clocks.Load(x.name)
	if !ok {
		return 0
	}
	m := known.(moment)
	return m.server + (begin.Sub(m.here) + x.options.Deadline).Milliseconds() + 1
}

// counts is how many numbers fallback.Counts has.
const counts = 4 + len(fallback.Counts{}.FirstToken)

// fields returns the numbers of c in the order in which they are stored.
func fields(c *fallback.Counts) (all [counts]*int64) {
	all = [counts]*int64{&c.OK, &c.Slow, &c.Failed, &c.Rejected}
	for i := range c.FirstToken {
		all[4+i] = &c.FirstToken[i]
	}
	return all
}
