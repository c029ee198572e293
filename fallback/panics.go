package fallback

import (
	"log/slog"
	"runtime/debug"
)

// caught is deferred around what hosts give us to call where a panic would end the
// process.
func caught(log *slog.Logger, whose, model string) {
	if v := recover(); v != nil {
		logPanic(log, whose, model, v)
	}
}

func logPanic(log *slog.Logger, whose, model string, v any) {
	log.Error("haiku: "+whose+" panicked", slog.String("model", model), slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
}

// ask puts a question to all judges. One that panics, while the breaker's lock is
// held, is asked no more.
func (c *core) ask(question func(Judge)) {
	for next := 0; next < len(c.judges); {
		next = c.askFrom(next, question)
	}
}

// askFrom asks the judges from a place on, and returns the place after the last
// that was asked.
func (c *core) askFrom(next int, question func(Judge)) (end int) {
	defer func() {
		if v := recover(); v != nil {
			logPanic(c.opts.Logger, "a breaker's policy", c.opts.Name, v)
			c.judges[next] = silent{}
			end = next + 1
		}
	}()
	for ; next < len(c.judges); next++ {
		question(c.judges[next])
	}
	return next
}

// silent is a judge that has nothing to say.
type silent struct{}

func (silent) Observe(*Sample) string { return "" }

func (silent) Reset() {}
