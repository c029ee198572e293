package batch

import "time"

// status says who holds an item besides the Do that waits for it.
type status int

const (
	waiting  status = iota // the queue
	running                // a worker
	held                   // the order of submission, the answer is there
	answered               // nobody: the answer is in done
)

// item is one request on its way. All fields but req, res and done are guarded
// by the batcher's lock; res is written before done is.
type item[Req, Resp any] struct {
	req  Req
	res  Result[Resp]
	done chan struct{} // of capacity 1, so that answering never blocks

	status    status
	abandoned bool // cancelled while running: its worker recycles it
	batch     *run[Req, Resp]

	arrived  time.Duration
	deadline time.Duration // of its context, 0 for none
	expires  time.Duration // queue timeout, 0 for none
	level    int
	at       int // index in the expiry heap, -1 outside

	queued, submitted link[Req, Resp]
	in                *list[Req, Resp] // the list that queued belongs to
}

// link is an item's place in one of two kinds of list.
type link[Req, Resp any] struct {
	prev, next *item[Req, Resp]
}

// list is a doubly linked list through the items' own links, the one that
// place selects; so an item leaves from the middle without a search.
type list[Req, Resp any] struct {
	first, last *item[Req, Resp]
	place       func(*item[Req, Resp]) *link[Req, Resp]
}

func (l *list[Req, Resp]) push(it *item[Req, Resp]) {
	*l.place(it) = link[Req, Resp]{prev: l.last}
	if l.last == nil {
		l.first = it
	} else {
		l.place(l.last).next = it
	}
	l.last = it
}

func (l *list[Req, Resp]) remove(it *item[Req, Resp]) {
	at := l.place(it)
	if at.prev == nil {
		l.first = at.next
	} else {
		l.place(at.prev).next = at.next
	}
	if at.next == nil {
		l.last = at.prev
	} else {
		l.place(at.next).prev = at.prev
	}
	*at = link[Req, Resp]{}
}

// queue holds the waiting items, by level.
type queue[Req, Resp any] struct {
	levels []lane[Req, Resp]
	size   int
	expiry expiryHeap[Req, Resp]
	// deadline is the earliest context deadline; stale after the item that had
	// it left, and then found again when it is asked for.
	deadline time.Duration
	stale    bool
}

// lane is one priority level: the items in time, then the delayed ones.
type lane[Req, Resp any] struct {
	timely, delayed list[Req, Resp]
	size            int
}

func newQueue[Req, Resp any](levels int) queue[Req, Resp] {
	place := func(it *item[Req, Resp]) *link[Req, Resp] { return &it.queued }
	q := queue[Req, Resp]{levels: make([]lane[Req, Resp], levels)}
	for i := range q.levels {
		q.levels[i].timely.place, q.levels[i].delayed.place = place, place
	}
	return q
}

func (q *queue[Req, Resp]) push(it *item[Req, Resp]) {
	lane := &q.levels[it.level]
	it.in = &lane.timely
	it.in.push(it)
	lane.size++
	q.size++
	if it.expires > 0 {
		q.expiry.push(it)
	}
	if it.deadline > 0 && (q.deadline == 0 || it.deadline < q.deadline) {
		q.deadline = it.deadline
	}
}

func (q *queue[Req, Resp]) remove(it *item[Req, Resp]) {
	it.in.remove(it)
	it.in = nil
	q.levels[it.level].size--
	q.size--
	q.expiry.remove(it)
	q.stale = q.stale || it.deadline > 0 && it.deadline == q.deadline
}

// delay puts an item whose timeout is over behind the others of its level.
func (q *queue[Req, Resp]) delay(it *item[Req, Resp]) {
	q.expiry.remove(it)
	it.expires = 0
	it.in.remove(it)
	it.in = &q.levels[it.level].delayed
	it.in.push(it)
}

// next returns the item to take first, nil if none waits.
func (q *queue[Req, Resp]) next() *item[Req, Resp] {
	for i := range q.levels {
		if first := q.levels[i].timely.first; first != nil {
			return first
		}
		if first := q.levels[i].delayed.first; first != nil {
			return first
		}
	}
	return nil
}

// oldest returns the arrival of the item that has waited longest. Delayed items
// are in the order in which they timed out; by then MaxDelay has long forced
// their batch, or a worker would have been idle.
func (q *queue[Req, Resp]) oldest() time.Duration {
	oldest := time.Duration(-1)
	for i := range q.levels {
		for _, l := range [...]*list[Req, Resp]{&q.levels[i].timely, &q.levels[i].delayed} {
			if l.first != nil && (oldest < 0 || l.first.arrived < oldest) {
				oldest = l.first.arrived
			}
		}
	}
	return oldest
}

// earliestDeadline returns the earliest context deadline, 0 for none. It looks
// at all items only after the one that had it left.
func (q *queue[Req, Resp]) earliestDeadline() time.Duration {
	if !q.stale {
		return q.deadline
	}
	q.deadline, q.stale = 0, false
	for i := range q.levels {
		for _, l := range [...]*list[Req, Resp]{&q.levels[i].timely, &q.levels[i].delayed} {
			for it := l.first; it != nil; it = it.queued.next {
				if it.deadline > 0 && (q.deadline == 0 || it.deadline < q.deadline) {
					q.deadline = it.deadline
				}
			}
		}
	}
	return q.deadline
}

// earliestExpiry returns the earliest queue timeout, 0 for none.
func (q *queue[Req, Resp]) earliestExpiry() time.Duration {
	if len(q.expiry) == 0 {
		return 0
	}
	return q.expiry[0].expires
}

// expiryHeap is a binary heap of the items with a queue timeout, by its end.
type expiryHeap[Req, Resp any] []*item[Req, Resp]

func (h *expiryHeap[Req, Resp]) push(it *item[Req, Resp]) {
	it.at = len(*h)
	*h = append(*h, it)
	h.up(it.at)
}

func (h *expiryHeap[Req, Resp]) remove(it *item[Req, Resp]) {
	if it.at < 0 {
		return
	}
	at, last := it.at, len(*h)-1
	h.swap(at, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	it.at = -1
	if at < last {
		h.down(at)
		h.up(at)
	}
}

func (h expiryHeap[Req, Resp]) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

func (h expiryHeap[Req, Resp]) up(i int) {
	for i > 0 && h[i].expires < h[(i-1)/2].expires {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (h expiryHeap[Req, Resp]) down(i int) {
	for {
		child := 2*i + 1
		if child+1 < len(h) && h[child+1].expires < h[child].expires {
			child++
		}
		if child >= len(h) || h[i].expires <= h[child].expires {
			return
		}
		h.swap(i, child)
		i = child
	}
}
