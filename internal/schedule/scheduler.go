package schedule

import (
	"slices"
	"time"
)

// Config is what a Scheduler works with. All sizes are positive.
type Config struct {
	BlockTokens int // positions of a block
	Blocks      int
	// MaxSequences is how many sequences run at once.
	MaxSequences int
	// StepTokens bounds the tokens of a step. It is at least twice MaxSequences,
	// so that prompts always get some.
	StepTokens int
	// Aging is how long a request waits until it counts as one level higher, and
	// again after each such time, so that a low level is slow and not starved;
	// 0 means 10 seconds.
	Aging time.Duration
	// TenantTokens is how many tokens a tenant may have had computed more than
	// the one that had least, until its requests have to wait for the other's
	// whatever their deadlines; 0 means 16 times StepTokens.
	TenantTokens int64
	// NoReuse computes every prompt anew.
	NoReuse bool
}

// Scheduler holds the state that decisions are made of. It is not safe for
// concurrent use: it belongs to the loop that asks it.
type Scheduler struct {
	cfg     Config
	pool    *pool
	queue   []*Seq // in order of arrival
	running []*Seq // in order of rank
	places  int    // that running sequences and siblings who wait for them take
	tenants map[string]*tenant
	lastID  uint64
	order   uint64
	turn    uint64 // calls of Next
	short   bool   // of blocks, in the step before
	answers estimate
	step    Step
	counts  Counts // those that only grow

	visit []*Seq // reused by Next
	wants []int  // reused by prefills
}

// Step is what the next step computes. It is valid until the next call of Next.
type Step struct {
	Items []Item
	// Preempted are the IDs of sequences that gave up their blocks: they will
	// come back under other IDs.
	Preempted []uint64
	// Expired are the sequences whose Expiry has passed. They have been removed.
	Expired []*Seq
}

// Item is a sequence's share of a step: the next N of its tokens.
type Item struct {
	Seq *Seq
	N   int
	// CopyFrom, unless it is negative, is a block whose first Computed%BlockTokens
	// slots have to be copied to the block that holds position Computed: the two
	// sequences that had it in common part here.
	CopyFrom int32
}

// Last reports whether the item ends with the last token there is, after which
// another is to be sampled.
func (it *Item) Last() bool { return it.N == it.Seq.left() }

// Counts tell what a Scheduler has done and what it holds.
type Counts struct {
	Queued, Running, Paused int // sequences; siblings count from the start
	IdleBlocks              int // free, or content that nobody uses now
	CachedBlocks            int // with content that can be found
	Preempted               int // so far
	PromptTokens            int // of all sequences admitted so far for the first time
	ReusedTokens            int // of those, found in the cache
}

// New returns a Scheduler without sequences.
func New(cfg Config) *Scheduler {
	if cfg.Aging <= 0 {
		cfg.Aging = 10 * time.Second
	}
	if cfg.TenantTokens <= 0 {
		cfg.TenantTokens = 16 * min(int64(cfg.StepTokens), 1<<32)
	}
	return &Scheduler{cfg: cfg, pool: newPool(cfg.Blocks), tenants: make(map[string]*tenant)}
}

// BlocksFor is the number of blocks that so many positions take.
func (s *Scheduler) BlocksFor(positions int) int {
	return (positions + s.cfg.BlockTokens - 1) / s.cfg.BlockTokens
}

// maxPriority bounds levels, so that waiting can raise them without overflow.
const maxPriority = 1 << 30

// Add puts a sequence with its siblings at the end of the queue.
func (s *Scheduler) Add(q *Seq, now time.Time) {
	q.prompt, q.arrived = len(q.Tokens), now
	q.Priority = min(max(q.Priority, -maxPriority), maxPriority)
	s.order++
	q.order = s.order
	for _, sibling := range q.Siblings {
		sibling.lead = q
	}
	q.tenant = s.join(q.Tenant)
	s.enqueue(q)
}

// enqueue keeps the queue in order of arrival: what was preempted comes before
// what has never run.
func (s *Scheduler) enqueue(q *Seq) {
	q.place = queued
	at, _ := slices.BinarySearchFunc(s.queue, q, func(a, b *Seq) int { return compare(a.order, b.order) })
	s.queue = slices.Insert(s.queue, at, q)
}

// Remove drops a sequence, and the siblings that wait for its prompt.
func (s *Scheduler) Remove(q *Seq) {
	if lead := q.lead; lead != nil {
		lead.Siblings = slices.DeleteFunc(lead.Siblings, func(o *Seq) bool { return o == q })
		if lead.place == running {
			s.places--
		}
		q.lead = nil
		return
	}
	switch q.place {
	case nowhere:
		return
	case queued:
		s.dequeue(q)
	case running:
		s.halt(q)
	}
	if len(q.Tokens) > q.prompt {
		s.answers.observe(len(q.Tokens) - q.prompt)
	}
	s.leave(q)
	for _, sibling := range q.Siblings {
		sibling.lead = nil
	}
	q.Siblings, q.place = nil, nowhere
}

func (s *Scheduler) dequeue(q *Seq) {
	s.queue = slices.DeleteFunc(s.queue, func(o *Seq) bool { return o == q })
}

// halt takes a sequence out of those that run, and its blocks from it.
func (s *Scheduler) halt(q *Seq) {
	s.running = slices.DeleteFunc(s.running, func(o *Seq) bool { return o == q })
	s.places -= 1 + len(q.Siblings)
	s.pool.giveAll(q.Blocks)
	q.Blocks, q.Computed, q.ID = q.Blocks[:0], 0, 0
}

// Append adds a sampled token to a sequence.
func (s *Scheduler) Append(q *Seq, token int32) {
	q.Tokens = append(q.Tokens, token)
	q.tenant.served++
}

// Pause keeps a sequence from computing until Resume.
func (s *Scheduler) Pause(q *Seq) { q.paused = true }

// Resume ends a pause.
func (s *Scheduler) Resume(q *Seq) {
	q.paused = false
	if q.place == parked {
		s.enqueue(q)
	}
}

// Free ends what held a sequence in the queue.
func (s *Scheduler) Free(q *Seq) { q.Held = false }

// Done says that an item has been computed: its keys and values are where its
// table says. It returns the siblings that can go on from here, with a share in
// the same blocks; the logits of the item are theirs too.
func (s *Scheduler) Done(q *Seq, n int) (siblings []*Seq) {
	full := q.Computed / s.cfg.BlockTokens
	q.Computed += n
	for ; full < q.Computed/s.cfg.BlockTokens; full++ {
		s.pool.remember(q.Blocks[full], q.key(full, s.cfg.BlockTokens))
	}
	if q.left() > 0 || len(q.Siblings) == 0 {
		return nil
	}
	siblings, q.Siblings = q.Siblings, nil
	for _, sibling := range siblings {
		s.fork(q, sibling)
	}
	return siblings
}

// fork lets a sibling go on where its lead is.
func (s *Scheduler) fork(lead, q *Seq) {
	owner := q.Owner
	*q = *lead
	q.Owner, q.lead, q.Siblings = owner, nil, nil
	q.Tokens, q.Blocks, q.keys = slices.Clone(lead.Tokens), slices.Clone(lead.Blocks), slices.Clone(lead.keys)
	s.lastID++
	q.ID = s.lastID
	for _, b := range q.Blocks {
		s.pool.share(b)
	}
	q.tenant = s.join(q.Tenant)
	s.rank(q)
}

// rank puts a sequence among those that run.
func (s *Scheduler) rank(q *Seq) {
	q.place = running
	at, _ := slices.BinarySearchFunc(s.running, q, func(a, b *Seq) int {
		if a.before(b) {
			return -1
		}
		return 1 // after equals: siblings share their lead's rank
	})
	s.running = slices.Insert(s.running, at, q)
}

// Counts tells what the Scheduler holds.
func (s *Scheduler) Counts() Counts {
	c := s.counts
	c.Queued, c.Running = len(s.queue), s.places
	for _, q := range s.running {
		if q.paused {
			c.Paused++
		}
	}
	c.IdleBlocks, c.CachedBlocks = s.pool.idle, len(s.pool.byKey)
	return c
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
