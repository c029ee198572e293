package infer

import (
	"context"
	"sync/atomic"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/internal/schedule"
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

	tenant    string
	objective haiku.Objective
	arrived
	wants        *adapter  // nil for none
	adapter      AdapterID // its id, 0 for none
	adapterScale float32

	// embeds says that it is an embedding, which has neither w nor req, and is
	// accepted as part of a request. mean is the loop's until done is closed.
	embeds bool
	mean   []float32 // [HiddenSize], of length one; nil if it has no direction

	room atomic.Uint32 // counts the reader's notices that there is room again

	// Guarded by Engine.mu.
	stage    jobStage
	held     bool // waits for its adapter
	stepping bool // alive in the step that runs now

	// The loop's own while the job runs, Generate's after done is closed.
	seqs  []*sequence // the first of them leads the others
	open  int         // sequences without an end
	ended bool
	usage haiku.Usage
	err   error
	done  chan struct{}
}

// jobStage is how far a job has come. It moves from each to the next, or to
// over.
type jobStage uint8

const (
	waiting jobStage = iota // nothing has been computed, and its end concerns nobody
	started                 // it has been in a step
	over                    // done is closed
)

// sequenceState is where a sequence stands. It moves
// computing ⇄ paused, and from both to finished.
type sequenceState uint8

const (
	computing sequenceState = iota // its prompt, or one token per step
	paused                         // its next piece waits for room in the ring
	finished                       // gives back what it held
)

// sequence is one choice of a job. It belongs to the engine's loop.
type sequence struct {
	schedule.Seq
	job     *job
	choice  int
	state   sequenceState
	sampler *sampler
	sum     []float64 // of an embedding's hidden states so far, [HiddenSize]

	pending  haiku.Piece // what a paused sequence could not push
	roomSeen uint32      // job.room when that push was refused
}

// newSequences makes the sequences of a job, led by the first.
func newSequences(j *job) {
	for choice := range j.open {
		s := &sequence{job: j, choice: choice}
		if j.req != nil {
			s.sampler = newSampler(j.req.Sampling, j.seed, choice, j.prompt)
		}
		s.Owner = s
		j.seqs = append(j.seqs, s)
		if choice > 0 {
			j.lead().Siblings = append(j.lead().Siblings, &s.Seq)
		}
	}
	lead := j.lead()
	lead.Root = schedule.Root(j.tenant, uint64(j.adapter), j.adapterScale)
	lead.Priority = j.objective.Priority
	lead.Tenant, lead.Limit, lead.Alone = j.tenant, j.limit, j.embeds
	lead.Tokens = append(make([]int32, 0, min(j.limit, len(j.prompt)+64)), j.prompt...)
}

func (j *job) lead() *sequence { return j.seqs[0] }

// item is a sequence's share of a step, without what is wanted of it.
func (s *sequence) item(share *schedule.Item) Item {
	it := Item{
		Seq: SeqID(s.ID), Start: s.Computed, Tokens: s.Tokens[s.Computed : s.Computed+share.N], Blocks: s.Blocks,
		Adapter: s.job.adapter, AdapterScale: s.job.adapterScale,
	}
	if share.CopyFrom >= 0 {
		it.Copy, it.CopyFrom = true, share.CopyFrom
	}
	return it
}
