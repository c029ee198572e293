package cache

import (
	"context"
	"sync"
	"time"

	"github.com/intelliparadigm/haiku"
)

// flights are the computations under way, one for each key. Whoever asks for the
// same while one runs gets its tokens from the first on and then as they come.
// It belongs to nobody in particular: those who leave leave the others to it,
// and the last one out ends it.
type flights struct {
	mu  sync.Mutex
	all map[Key]*flight
}

// flight is one computation.
type flight struct {
	cancel context.CancelFunc
	over   chan struct{} // closed when its goroutine has ended
	tags   []tag         // what the answer depends on, at the versions it began under

	mu     sync.Mutex
	riders int           // guarded by flights.mu
	news   chan struct{} // closed, and made anew, when something below changes
	answer Answer        // so far
	about  about         // known with the first token
	done   bool
	err    error
}

// join returns the flight for key, and begins one if there is none, or none whose
// tags are current: run computes, and returns when it is over. The caller rides
// until it calls leave.
func (g *flights) join(ctx context.Context, key Key, tags []tag, current func([]tag) bool, run func(context.Context, *flight)) (f *flight, first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.all[key]; f != nil && current(f.tags) {
		f.riders++
		return f, false
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f = &flight{cancel: cancel, over: make(chan struct{}), news: make(chan struct{}), riders: 1, tags: tags}
	if g.all == nil {
		g.all = make(map[Key]*flight)
	}
	g.all[key] = f
	go func() {
		defer close(f.over)
		defer cancel()
		defer g.land(key, f)
		run(ctx, f)
	}()
	return f, true
}

// land takes a flight off the list, so that the next begins anew.
func (g *flights) land(key Key, f *flight) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all[key] == f {
		delete(g.all, key)
	}
}

// leave ends a ride. The last rider ends the computation, and waits for that.
func (g *flights) leave(key Key, f *flight) {
	g.mu.Lock()
	f.riders--
	last := f.riders == 0
	if last && g.all[key] == f {
		delete(g.all, key)
	}
	g.mu.Unlock()
	if last {
		f.cancel()
		<-f.over
	}
}

// about is what a model tells of its answer beside the tokens.
type about struct {
	model    string
	headers  []string // names and values in turns
	degraded bool
}

// tell gives it to a rider.
func (a *about) tell(w *haiku.StreamWriter) {
	tellModel(w, a.model)
	for i := 0; i+1 < len(a.headers); i += 2 {
		if name := a.headers[i]; name != headerCache && name != headerAge { // of a cache further in
			w.SetHeader(name, a.headers[i+1])
		}
	}
	if a.degraded {
		w.SetDegraded()
	}
}

// add makes a token of an answer known to all riders.
func (f *flight) add(from *haiku.StreamWriter, tok haiku.Token) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.answer.Tokens) == 0 {
		f.about = about{from.Model(), from.Headers(), from.Degraded()}
	}
	f.answer.Tokens = append(f.answer.Tokens, tok)
	f.tell()
}

// finish makes the end known; the first one counts.
func (f *flight) finish(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done {
		return
	}
	f.done, f.err = true, err
	f.tell()
}

// succeeded reports whether the flight has ended with an answer.
func (f *flight) succeeded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done && f.err == nil
}

func (f *flight) tell() {
	close(f.news)
	f.news = make(chan struct{})
}

// after returns the tokens from number n on, and if there are none, whether the
// flight is over and by which error; if it is not, news is what to wait for.
func (f *flight) after(n int) (tokens []haiku.Token, news <-chan struct{}, done bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.answer.Tokens[n:], f.news, f.done, f.err
}

// end notes who gave the answer and what it cost.
func (f *flight) end(model string, usage haiku.Usage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer.Model, f.answer.Usage, f.answer.Created = model, usage, time.Now()
}

func (f *flight) describe(w *haiku.StreamWriter) {
	f.mu.Lock()
	about := f.about
	f.mu.Unlock()
	about.tell(w)
}

func (f *flight) usage() haiku.Usage {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.answer.Usage
}
