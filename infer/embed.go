package infer

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/intelliparadigm/haiku"
)

var _ haiku.Embedder = (*Engine)(nil)

// Embed returns the mean of the hidden states that the model ends with, over
// the tokens of each input, of length one. Inputs are computed side by side in
// the same batch as generations. An adapter is asked for as by a generation.
func (e *Engine) Embed(ctx context.Context, req *haiku.EmbeddingRequest) (*haiku.Embeddings, error) {
	size := e.spec.HiddenSize
	switch {
	case size == 0:
		return nil, haiku.ErrUnsupported.With("model", "this model makes no embeddings")
	case len(req.Inputs) == 0:
		return nil, haiku.ErrInvalidRequest.With("input", "there is nothing to embed")
	case req.Dimensions != 0 && req.Dimensions != size:
		return nil, haiku.ErrInvalidRequest.With("dimensions", "this model's embeddings have %d dimensions, not %d", size, req.Dimensions)
	}
	a, id, err := e.use(&haiku.Request{Model: req.Model})
	if err != nil {
		return nil, err
	}
	defer e.done(a)
	jobs := make([]*job, len(req.Inputs))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i := range jobs {
		if jobs[i], err = e.embeddingJob(ctx, req, i); err != nil {
			return nil, err
		}
		if a != nil {
			jobs[i].adapter, jobs[i].adapterScale, jobs[i].wants = id, 1, a
		}
	}
	if err := e.enter(jobs); err != nil {
		return nil, err
	}
	defer e.leave()
	if err := e.runAll(jobs, cancel); err != nil {
		return nil, err
	}
	out := &haiku.Embeddings{Model: e.opts.Name, Vectors: make([][]float32, len(jobs))}
	if a != nil {
		out.Model = a.name
	}
	for i, j := range jobs {
		out.Usage.PromptTokens += j.usage.PromptTokens
		if out.Vectors[i] = j.mean; out.Vectors[i] == nil {
			return nil, fmt.Errorf("infer: executor %s: the hidden states of input %d have no direction", e.spec.Name, i)
		}
	}
	return out, nil
}

// runAll runs jobs, at most as many at a time as the batch has places for, so
// that a request of many inputs does not fill the queue. The first that fails
// cancels the others.
func (e *Engine) runAll(jobs []*job, cancel func()) error {
	var next atomic.Int64
	var once sync.Once
	var failure error
	var wg sync.WaitGroup
	for range min(len(jobs), e.opts.MaxSequences) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(jobs); i = int(next.Add(1)) - 1 {
				if err := e.run(jobs[i]); err != nil {
					once.Do(func() { failure = err })
					cancel()
					return
				}
			}
		})
	}
	wg.Wait()
	return failure
}

// embeddingJob is input i as a job that only computes its prompt.
func (e *Engine) embeddingJob(ctx context.Context, req *haiku.EmbeddingRequest, i int) (*job, error) {
	param := "input"
	if len(req.Inputs) > 1 {
		param = fmt.Sprintf("input[%d]", i)
	}
	in := &req.Inputs[i]
	ids := in.Tokens
	if len(ids) > 0 {
		if err := e.text.known(param, ids); err != nil {
			return nil, err
		}
	} else {
		if least := len(in.Text) / e.text.longestToken; least > e.spec.ContextTokens {
			return nil, haiku.ErrContextLength.With(param, "the text has more than %d tokens and the model's context holds %d", least, e.spec.ContextTokens)
		}
		if ids = e.text.text.Tokenizer.Encode(nil, in.Text, false); len(ids) == 0 {
			return nil, haiku.ErrInvalidRequest.With(param, "there is nothing to embed: the text is empty")
		}
		ids = e.text.withBOS(ids)
	}
	if n := len(ids); n > e.spec.ContextTokens || e.spec.blocksFor(n) > e.spec.Blocks {
		return nil, haiku.ErrContextLength.With(param, "the text has %d tokens and the model's context holds %d", n,
			min(e.spec.ContextTokens, e.spec.Blocks*e.spec.BlockTokens))
	}
	return &job{
		ctx: ctx, tenant: haiku.IdentityFrom(ctx).Tenant, objective: haiku.ObjectiveFrom(ctx), prompt: ids, limit: len(ids), open: 1, done: make(chan struct{}), embeds: true,
	}, nil
}

// pool adds the states of an item's tokens to their sequence's sum, one token
// after the other, so that it does not matter how the prompt was cut.
func (e *Engine) pool(s *sequence, states []float32) {
	if s.sum == nil {
		s.sum = make([]float64, e.spec.HiddenSize)
	}
	for len(states) > 0 {
		for d, x := range states[:len(s.sum)] {
			s.sum[d] += float64(x)
		}
		states = states[len(s.sum):]
	}
	if s.Computed == len(s.Tokens) {
		s.job.mean = unit(s.sum)
		e.finish(s)
	}
}

// enter counts a request of many jobs as one that waits, and then as one that is
// answered, until leave: once it is accepted, so are all its jobs.
func (e *Engine) enter(jobs []*job) error {
	tokens := 0
	for _, j := range jobs {
		tokens += len(j.prompt)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.accept(jobs[0], tokens); err != nil {
		return err
	}
	for _, j := range jobs {
		j.arrived = jobs[0].arrived
	}
	e.active++
	return nil
}

func (e *Engine) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.left()
	e.poke()
}

// hiddenRows returns room for the hidden states of n tokens of the step, after
// those that the items before have.
func (e *Engine) hiddenRows(n int) []float32 {
	size := e.spec.HiddenSize
	e.hiddenUsed += n
	if e.hiddenUsed*size > len(e.hidden) { // rows handed out before stay where they are
		e.hidden = make([]float32, 2*e.hiddenUsed*size)
	}
	return e.hidden[(e.hiddenUsed-n)*size : e.hiddenUsed*size]
}

// unit returns v at length one, or nil if it has no direction.
func unit(v []float64) []float32 {
	var squares float64
	for _, x := range v {
		squares += x * x
	}
	if squares == 0 || math.IsNaN(squares) || math.IsInf(squares, 0) {
		return nil
	}
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(x / math.Sqrt(squares))
	}
	return out
}
