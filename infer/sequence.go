package infer

import (
	"context"
	"sync/atomic"

	"github.com/intelliparadigm/haiku"
)

// job is one request inside the engine. Fields without a comment on who owns
// them are fixed when the job is submitted.
type job struct {
	ctx    context.Context
	w      *haiku.StreamWriter
	req    *haiku.Request
	prompt []int32 // [tokens]
	limit  int     // most tokens of prompt and answer together, per choice
	seed   uint64

	adapter      AdapterID // 0 for none
	adapterScale float32

	// sum is nil for a generation. For an embedding, which has neither w nor
	// req, it belongs to the loop: the sum of all hidden states, [HiddenSize].
	sum []float64

	room atomic.Uint32 // counts the reader's notices that there is room again

	queued   bool // guarded by Engine.mu: waits for admission
	stepping bool // guarded by Engine.mu: alive in the step that runs now

	// The loop's own while the job runs, Generate's after done is closed.
	seqs  []*sequence
	open  int // sequences without an end
	ended bool
	usage haiku.Usage
	err   error
	done  chan struct{}
}

// sequenceState is where a sequence stands. It moves
// prefilling → decoding ⇄ paused, and from each of them to finished.
type sequenceState uint8

const (
	prefilling sequenceState = iota // computing its prompt
	decoding                        // computing one token per step
	paused                          // its next piece waits for room in the ring
	finished                        // gives back what it held
)

// sequence is one choice of a job. It belongs to the engine's loop.
type sequence struct {
	id       SeqID
	job      *job
	choice   int
	state    sequenceState
	tokens   []int32 // prompt and answer so far
	computed int     // tokens whose keys and values are in blocks
	blocks   []int32 // block table for limit positions
	sampler  *sampler

	waiting  haiku.Piece // what a paused sequence could not push
	roomSeen uint32      // job.room when that push was refused
}

// demand says what the sequence could compute in the next step.
func (s *sequence) demand() demand {
	switch s.state {
	case prefilling:
		return demand{tokens: len(s.tokens) - s.computed}
	case decoding:
		return demand{tokens: 1, decoding: true}
	default:
		return demand{}
	}
}

// item is the sequence's share of a step, without what is wanted of it.
func (s *sequence) item(tokens int) Item {
	return Item{
		Seq: s.id, Start: s.computed, Tokens: s.tokens[s.computed : s.computed+tokens], Blocks: s.blocks,
		Adapter: s.job.adapter, AdapterScale: s.job.adapterScale,
	}
}
