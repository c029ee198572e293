package batch

import "time"

// proceed does all that can be done at the time now: it times items out, starts
// batches, and sets the alarm. The lock is held.
func (b *DynamicBatcher[Req, Resp]) proceed(now time.Duration) {
	until := b.advance(now)
	if b.over || until > 0 && (b.alarm == 0 || until < b.alarm) {
		b.alarm = until
		select {
		case b.wake <- struct{}{}:
		default: // it will look anyhow
		}
	}
}

// advance is proceed without the alarm, whose time it returns, 0 for none.
func (b *DynamicBatcher[Req, Resp]) advance(now time.Duration) (until time.Duration) {
	for {
		// As long as a window is open a worker is idle, and the window ends
		// before anyone's timeout: whoever seems late is late by the clock's
		// grain, and is served.
		if !b.holding {
			b.expire(now)
		}
		d := b.decide(now)
		b.holding = d.Size == 0 && b.queue.size > 0 && len(b.idle) > 0
		if d.Size == 0 {
			b.finish()
			if b.holding {
				return d.Until
			}
			return b.queue.earliestExpiry()
		}
		b.begin(d.Size)
	}
}

func (b *DynamicBatcher[Req, Resp]) decide(now time.Duration) Verdict {
	if b.queue.size == 0 || len(b.idle) == 0 {
		return Verdict{}
	}
	if b.closing { // nobody else will come
		return Verdict{Size: min(b.queue.size, b.options.MaxBatchSize)}
	}
	s := State{Waiting: b.queue.size, IdleWorkers: len(b.idle), Arrivals: &b.arrivals, Cost: &b.cost}
	if s.Waiting < b.options.MaxBatchSize { // otherwise no time matters
		s.Oldest, s.Deadline, s.Expiry = b.queue.oldest(), b.queue.earliestDeadline(), b.queue.earliestExpiry()
	}
	return b.window.Decide(now, s)
}

// expire rejects or delays the items whose queue timeout is over.
func (b *DynamicBatcher[Req, Resp]) expire(now time.Duration) {
	for len(b.queue.expiry) > 0 && b.queue.expiry[0].expires <= now {
		it := b.queue.expiry[0]
		if b.options.Levels[it.level].OnTimeout == Delay {
			b.count.delayed++
			b.queue.delay(it)
			continue
		}
		b.count.expired++
		b.dismiss(it, &QueueTimeoutError{Level: it.level, Waited: now - it.arrived})
	}
	b.release()
}

// begin hands the first size items to an idle worker.
func (b *DynamicBatcher[Req, Resp]) begin(size int) {
	r := b.idle[len(b.idle)-1]
	b.idle = b.idle[:len(b.idle)-1]
	for range size {
		it := b.queue.next()
		b.queue.remove(it)
		it.status, it.batch = running, r
		r.items = append(r.items, it)
	}
	r.wanted = size
	b.count.batches++
	b.count.items += uint64(size)
	b.count.sizes[size]++
	b.work <- r
}

// finish ends the workers once the batcher is closing and nothing is left.
func (b *DynamicBatcher[Req, Resp]) finish() {
	if b.closing && !b.over && b.queue.size == 0 && len(b.idle) == b.options.Workers {
		b.over = true
		close(b.work)
	}
}

// dispatcher proceeds whenever a window or a queue timeout ends.
func (b *DynamicBatcher[Req, Resp]) dispatcher() {
	defer close(b.stopped)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		b.mu.Lock()
		now := b.now()
		b.alarm = b.advance(now)
		until, over := b.alarm, b.over
		b.mu.Unlock()
		if over {
			break
		}
		timer.Stop()
		if until > 0 {
			timer.Reset(until - now)
		}
		select {
		case <-timer.C:
		case <-b.wake:
		}
	}
	b.workers.Wait()
	b.cancel()
}
