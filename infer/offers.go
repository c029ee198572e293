package infer

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/intelliparadigm/haiku"
)

// AdapterSource reads an adapter when it is needed, as [OpenAdapter] does. It may
// be called again after the adapter had to make room for others.
type AdapterSource func(ctx context.Context) (*AdapterFile, error)

// OfferAdapter makes an adapter known by name without loading it. The first
// request that asks for it makes it load, while the request waits for its turn;
// others are served meanwhile. It stays loaded until Options.AdapterBytes is too
// little for it and another: then the one not used for longest goes, never one
// that a request uses or waits for. One in constant use is never asked to go.
//
// A load that fails is an error for the requests that wait for it, and is tried
// again by the next. Errors of OfferAdapter are those of [Engine.AddAdapter]
// that concern the name and the executor.
func (e *Engine) OfferAdapter(name string, source AdapterSource) error {
	if err := e.adaptable(name, source != nil); err != nil {
		return err
	}
	a, err := e.reserve(name)
	if err != nil {
		return err
	}
	defer e.loads.Done()
	e.mu.Lock()
	defer e.mu.Unlock()
	a.state, a.source, a.id = absent, source, 0
	return nil
}

// Offer is OfferAdapter of the file at path.
func (e *Engine) Offer(name, path string) error {
	return e.OfferAdapter(name, func(context.Context) (*AdapterFile, error) { return OpenAdapter(path) })
}

// fetch begins to load an adapter that is absent. The caller holds mu.
func (e *Engine) fetch(a *adapter) error {
	if e.life == killed {
		return haiku.ErrClosed.Because(ErrClosed)
	}
	e.lastAdapter++
	a.state, a.id = loading, e.lastAdapter
	e.loads.Add(1)
	go func() {
		defer e.loads.Done()
		err := errExited // if the source or the executor ends this goroutine
		defer func() { e.fetched(a, err) }()
		err = e.bringIn(a)
	}()
	return nil
}

// fetched ends a load and tells those that wait for it.
func (e *Engine) fetched(a *adapter, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	waiting := a.waiting
	a.waiting = nil
	for _, j := range waiting {
		e.unhold(j)
	}
	if err == nil {
		a.state, a.failure = ready, nil
		e.freed = append(e.freed, waiting...)
	} else {
		a.state, a.failure = absent, fmt.Errorf("infer: adapter %q: %w", a.name, err)
		if e.life == killed {
			a.failure = haiku.ErrClosed.Because(ErrClosed)
		}
		e.adapterBytes -= a.bytes
		a.id, a.bytes = 0, 0
		for _, j := range waiting {
			e.drop(j, a.failure)
		}
	}
	e.released() // it is idle now, or its bytes are free
	e.poke()
}

// bringIn reads an adapter, makes room for it and loads it.
func (e *Engine) bringIn(a *adapter) error {
	file, err := readAdapter(e.loadCtx, a.source)
	if err != nil {
		return err
	}
	if err := e.makeRoom(a, file.Bytes()); err != nil {
		return err
	}
	return loadAdapter(e.loadCtx, e.exec.(AdapterExecutor), a.id, file)
}

func readAdapter(ctx context.Context, source AdapterSource) (file *AdapterFile, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &haiku.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	if file, err = source(ctx); err == nil && file == nil {
		err = fmt.Errorf("%w: there is no file", ErrAdapter)
	}
	return file, err
}

// makeRoom takes bytes of the budget for a, and unloads adapters for it that
// nobody uses. It waits for such adapters as long as all are in use.
func (e *Engine) makeRoom(a *adapter, bytes int64) error {
	budget := e.opts.AdapterBytes
	if budget > 0 && bytes > budget {
		return fmt.Errorf("%w: it takes %d bytes, AdapterBytes allows %d", ErrUnsupportedModel, bytes, budget)
	}
	for {
		e.mu.Lock()
		var gone []AdapterID
		for budget > 0 && e.adapterBytes+bytes > budget && e.adapterBytes+bytes-e.idleBytes() <= budget {
			victim := e.idleAdapter()
			if victim == nil || !e.beginUnload() {
				break
			}
			gone = append(gone, victim.id)
			e.adapterBytes -= victim.bytes
			victim.state, victim.id, victim.bytes = absent, 0, 0
		}
		fits := budget <= 0 || e.adapterBytes+bytes <= budget
		if fits {
			e.adapterBytes += bytes
			a.bytes = bytes
		}
		released := e.roomier
		e.mu.Unlock()
		for _, id := range gone {
			e.unloadAdapter(id)
		}
		if fits {
			return nil
		}
		select {
		case <-released:
		case <-e.loadCtx.Done():
			return e.loadCtx.Err()
		}
	}
}

// idleBytes is what all adapters that nobody uses take. The caller holds mu.
func (e *Engine) idleBytes() (bytes int64) {
	for _, a := range e.adapters {
		if a.source != nil && a.state == ready && a.users == 0 {
			bytes += a.bytes
		}
	}
	return bytes
}

// idleAdapter is the offered adapter that nobody uses and that was used longest
// ago, nil if there is none. The caller holds mu.
func (e *Engine) idleAdapter() *adapter {
	var oldest *adapter
	for _, a := range e.adapters {
		if a.source != nil && a.state == ready && a.users == 0 && (oldest == nil || a.used.Before(oldest.used)) {
			oldest = a
		}
	}
	return oldest
}

// await makes j wait for its adapter, if that is not loaded. The caller holds mu.
func (e *Engine) await(j *job) error {
	a := j.wants
	switch {
	case a == nil || (a.state == ready && a.id == j.adapter):
		return nil
	case a.state == loading && a.id == j.adapter:
		if e.held >= e.opts.MaxQueued {
			return haiku.ErrTooBusy.With("", "%d requests are waiting for adapters already", e.held)
		}
		a.waiting = append(a.waiting, j)
		j.held = true
		e.held++
		return nil
	case a.failure != nil: // since use
		return a.failure
	default:
		return fmt.Errorf("infer: adapter %q: %w", a.name, context.Canceled)
	}
}

// letGo notes that an adapter has one user less. The caller holds mu.
func (e *Engine) letGo(a *adapter) {
	a.users--
	a.used = time.Now()
	if a.users == 0 {
		e.released()
	}
}

// released tells those that wait for room that there may be more. The caller
// holds mu.
func (e *Engine) released() {
	close(e.roomier)
	e.roomier = make(chan struct{})
}

// unhold notes that j does not wait for its adapter any more. The caller holds
// mu.
func (e *Engine) unhold(j *job) {
	if j.held {
		j.held = false
		e.held--
	}
}
