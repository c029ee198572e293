package schedule

import "time"

// Seq is one sequence: a prompt and what was generated after it. The caller sets
// the fields of the first group before [Scheduler.Add] and changes none of them
// after it but through the Scheduler's methods.
type Seq struct {
	// Owner is for the caller to find its own record again.
	Owner any
	// Tenant is whose tokens these are, for fairness.
	Tenant string
	// Root is the key before the first block, see [Root].
	Root Key
	// Priority is the level; lower ones come first.
	Priority int
	// Deadline is when the first token is due; zero means at no certain time.
	Deadline time.Time
	// Expiry is when the sequence is dropped if it still waits for its first
	// admission; zero means never.
	Expiry time.Time
	// Tokens are the prompt's, and later the answer's too.
	Tokens []int32
	// Limit is the most tokens there may be.
	Limit int
	// Alone keeps the sequence from beginning with blocks that others have
	// computed, for callers that want something of every token.
	Alone bool
	// Held keeps the sequence in the queue, and lets others pass, until
	// [Scheduler.Free].
	Held bool
	// Siblings begin with the same prompt, which is computed for all at once.
	// They have Owner set, and nothing else; the rest is copied.
	Siblings []*Seq

	// ID names the sequence to the executor; each admission gives a new one.
	ID uint64
	// Computed is how many tokens have keys and values in Blocks.
	Computed int
	// Blocks is the block table.
	Blocks []int32
	// Reused is how many tokens the first admission found in the cache.
	Reused int

	place    place
	paused   bool
	prompt   int // tokens of the prompt
	arrived  time.Time
	order    uint64 // of arrival
	level    int    // at admission
	admitted bool   // at least once
	turn     uint64 // when it was last in a step
	keys     []Key  // of the full blocks of Tokens, as far as they were needed
	lead     *Seq   // whose prompt this sibling waits for
	tenant   *tenant
}

// place says where a sequence is.
type place uint8

const (
	nowhere place = iota // not added yet, or removed
	queued
	running
	parked // preempted while paused
)

// Waiting reports whether the sequence waits in the queue.
func (s *Seq) Waiting() bool { return s.place == queued }

// left is how many tokens have no keys and values yet.
func (s *Seq) left() int { return len(s.Tokens) - s.Computed }

// Decodes reports whether the sequence computes the token it has sampled last.
func (s *Seq) Decodes() bool { return len(s.Tokens) > s.prompt && s.left() == 1 }

// key returns the key of full block i.
func (s *Seq) key(i, blockTokens int) Key {
	for len(s.keys) <= i {
		before, at := s.Root, len(s.keys)
		if at > 0 {
			before = s.keys[at-1]
		}
		s.keys = append(s.keys, before.next(s.Tokens[at*blockTokens:(at+1)*blockTokens]))
	}
	return s.keys[i]
}

// Hash computes the keys of a prompt before the sequence is added, so that the
// Scheduler does not have to.
func (s *Seq) Hash(blockTokens int) {
	if full := len(s.Tokens) / blockTokens; full > 0 {
		s.key(full-1, blockTokens)
	}
}

// before reports whether s ranks higher than t among those that run.
func (s *Seq) before(t *Seq) bool {
	if s.level != t.level {
		return s.level < t.level
	}
	return s.order < t.order
}
