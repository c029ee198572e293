package cpu

import (
	"context"
	"fmt"
	"math"

	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/internal/model"
	"github.com/intelliparadigm/haiku/internal/simd"
)

// executor runs one model. Its methods are called by one goroutine at a time,
// as [infer.Executor] says.
type executor struct {
	model  *model.Model
	spec   infer.Spec
	level  simd.Level
	kv     *kvCache
	pool   *pool
	closed bool

	shareMACs int // see the constant

	shape    shape
	adapters adapterSet
	act      activations
	routing  routing
	scratch  []workerScratch // [threads]

	// The step under way.
	spans     []span
	positions []int // [tokens]
	tiles     []queryTile

	// The operations, kept here so that a step allocates nothing.
	product   productTask
	logits    logitsTask
	tokens    tokenTask
	attention attentionTask
	merge     mergeTask
	adaption  adaptTask
	route     routeTask
}

// span is one item's rows in the matrix of a step.
type span struct {
	item  *infer.Item
	start int // position of the first row
	first int // its row
	n     int // number of rows

	adapter *adapter // nil for none
	scale   float32  // of the adapter
}

// activations are the matrices of a step, [MaxBatchTokens] rows each.
type activations struct {
	x        []float32    // [tokens][Dim] residual stream
	h        []float32    // [tokens][Dim] normalised, or about to be added to x
	q        []float32    // [tokens][Heads·HeadDim]
	k, v     []float32    // [tokens][KVHeads·HeadDim]
	att      []float32    // [tokens][Heads·HeadDim]
	gate, up []float32    // [tokens · max(1, ExpertsUsed)][FFN]
	angles   []angleTable // [Rotations]
}

// workerScratch is what one goroutine needs for itself.
type workerScratch struct {
	tile   []float32 // decoded weights, see simd.TileLen
	logits []float32 // [MaxBatchTokens][logitRows]
	low    []float32 // [adapterRows][rank], of an adapter
	delta  []float32 // [adapterRows][outputs], of an adapter
	attentionScratch
}

// activationFloats is what one token takes in activations.
func activationFloats(c *model.Config) int {
	perRoute := 2 * c.FFN
	if c.Experts > 0 {
		perRoute += 2 * c.Dim
	}
	return 2*c.Dim + 2*(c.Heads+c.KVHeads)*c.HeadDim + perRoute*max(1, c.ExpertsUsed) + c.Experts + c.RopeDims*len(c.Rotations)
}

func newExecutor(m *model.Model, spec infer.Spec, level simd.Level, o Options) (*executor, error) {
	n, c := spec.MaxBatchTokens, &m.Config
	kv, err := newKVCache(c, kvFormats[o.KV], spec.Blocks, spec.BlockTokens)
	if err != nil {
		return nil, err
	}
	queries, keys, routes := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim, n*max(1, c.ExpertsUsed)
	e := &executor{
		model: m, spec: spec, level: level,
		kv:        kv,
		pool:      newPool(o.Threads),
		shareMACs: shareMACs,
		shape:     shape{*c},
		adapters:  adapterSet{byID: make(map[infer.AdapterID]*adapter)},
		routing:   newRouting(c, n),
		act: activations{
			x: make([]float32, n*c.Dim), h: make([]float32, n*c.Dim),
			q: make([]float32, n*queries), att: make([]float32, n*queries),
			k: make([]float32, n*keys), v: make([]float32, n*keys),
			gate: make([]float32, routes*c.FFN), up: make([]float32, routes*c.FFN),
		},
		scratch:   make([]workerScratch, o.Threads),
		spans:     make([]span, 0, n),
		positions: make([]int, n),
		tiles:     make([]queryTile, 0, n),
	}
	for range c.Rotations {
		e.act.angles = append(e.act.angles, angleTable{make([]float32, n*c.RopeDims/2), make([]float32, n*c.RopeDims/2)})
	}
	tile := max(simd.TileLen(c.Dim), simd.TileLen(queries), simd.TileLen(c.FFN))
	for i := range e.scratch {
		e.scratch[i] = workerScratch{
			tile:             make([]float32, tile),
			logits:           make([]float32, n*logitRows),
			attentionScratch: newAttentionScratch(c),
		}
	}
	e.product = productTask{e: e, jobs: make([]productJob, 0, 2*max(2, c.Experts))}
	e.logits = logitsTask{e: e, items: make([]*infer.Item, 0, n)}
	e.tokens.e, e.attention.e, e.merge.e, e.adaption.e, e.route.e = e, e, e, e, e
	return e, nil
}

// Spec describes the executor.
func (e *executor) Spec() infer.Spec { return e.spec }

// Release does nothing: a sequence is no more than its block table.
func (e *executor) Release(infer.SeqID) {}

// Close ends the worker goroutines and drops all memory.
func (e *executor) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	e.adapters.mu.Lock()
	e.adapters.byID = nil
	e.adapters.mu.Unlock()
	e.pool.close()
	err := e.kv.free()
	e.model, e.kv, e.act, e.routing, e.scratch = nil, nil, activations{}, routing{}, nil
	return err
}

// Step computes a batch. Items that are not well formed get an Err of their
// own; the rest is computed.
func (e *executor) Step(ctx context.Context, b *infer.Batch) error {
	if e.closed {
		return fmt.Errorf("cpu: step: %w", infer.ErrClosed)
	}
	defer e.forget()
	tokens, err := e.gather(b)
	if err != nil || tokens == 0 {
		return err
	}
	return e.forward(ctx, tokens)
}

// forget drops references to the batch.
func (e *executor) forget() {
	clear(e.spans[:cap(e.spans)])
	clear(e.logits.items[:cap(e.logits.items)])
	e.spans, e.logits.items = e.spans[:0], e.logits.items[:0]
}

// gather checks the items, makes the copies they ask for, gives the good ones
// their rows and looks up their tokens' embeddings. It returns the number of rows.
func (e *executor) gather(b *infer.Batch) (tokens int, err error) {
	for i := range b.Items {
		item := &b.Items[i]
		var adapter *adapter
		if item.Err = e.check(item); item.Err == nil {
			adapter, item.Err = e.adapters.lookup(item)
		}
		if item.Err != nil {
			continue
		}
		if tokens+len(item.Tokens) > e.spec.MaxBatchTokens {
			return 0, fmt.Errorf("cpu: step of more than %d tokens", e.spec.MaxBatchTokens)
		}
		if item.Copy {
			e.kv.copy(item.Blocks[item.Start/e.spec.BlockTokens], item.CopyFrom, item.Start%e.spec.BlockTokens)
		}
		e.spans = append(e.spans, span{item, item.Start, tokens, len(item.Tokens), adapter, item.AdapterScale})
		for j, token := range item.Tokens {
			e.embed(tokens+j, item.Start+j, int(token))
		}
		tokens += len(item.Tokens)
	}
	return tokens, nil
}

// embed begins a row with its token's embedding.
func (e *executor) embed(row, position, token int) {
	e.positions[row] = position
	x := e.act.x[row*e.model.Dim : (row+1)*e.model.Dim]
	e.level.Row(x, &e.model.Embedding, token)
	if scale := e.model.EmbeddingScale; scale != 1 {
		for i := range x {
			x[i] *= scale
		}
	}
}

// check reports what makes an item impossible to compute.
func (e *executor) check(item *infer.Item) error {
	end := item.Start + len(item.Tokens)
	switch {
	case len(item.Tokens) == 0:
		return fmt.Errorf("cpu: sequence %d: no tokens", item.Seq)
	case item.Start < 0 || item.Start > e.spec.ContextTokens || end > e.spec.ContextTokens:
		return fmt.Errorf("cpu: sequence %d: positions %d to %d are outside the context of %d", item.Seq, item.Start, end-1, e.spec.ContextTokens)
	case len(item.Blocks)*e.spec.BlockTokens < end:
		return fmt.Errorf("cpu: sequence %d: %d blocks of %d are too few for %d positions", item.Seq, len(item.Blocks), e.spec.BlockTokens, end)
	case item.Copy && (item.CopyFrom < 0 || int(item.CopyFrom) >= e.spec.Blocks):
		return fmt.Errorf("cpu: sequence %d: a copy of block %d, there are %d", item.Seq, item.CopyFrom, e.spec.Blocks)
	case item.Hidden != nil && len(item.Hidden) != len(item.Tokens)*e.spec.HiddenSize:
		return fmt.Errorf("cpu: sequence %d: room for %d floats, hidden states of %d tokens have %d", item.Seq, len(item.Hidden), len(item.Tokens), len(item.Tokens)*e.spec.HiddenSize)
	case math.IsNaN(float64(item.AdapterScale)) || math.IsInf(float64(item.AdapterScale), 0):
		return fmt.Errorf("cpu: sequence %d: the adapter's scale is %g", item.Seq, item.AdapterScale)
	case item.Logits != nil && len(item.Logits) != e.spec.VocabSize:
		return fmt.Errorf("cpu: sequence %d: room for %d logits, the vocabulary has %d", item.Seq, len(item.Logits), e.spec.VocabSize)
	}
	for _, token := range item.Tokens {
		if token < 0 || int(token) >= e.spec.VocabSize {
			return fmt.Errorf("cpu: sequence %d: token %d is not in the vocabulary of %d", item.Seq, token, e.spec.VocabSize)
		}
	}
	for _, block := range item.Blocks[:(end+e.spec.BlockTokens-1)/e.spec.BlockTokens] {
		if block < 0 || int(block) >= e.spec.Blocks {
			return fmt.Errorf("cpu: sequence %d: block %d is not among the %d", item.Seq, block, e.spec.Blocks)
		}
	}
	return nil
}
