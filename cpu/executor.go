package cpu

import (
	"context"
	"fmt"

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

	frequencies []float64 // [RopeDims/2] radians per position
	act         activations
	scratch     []workerScratch // [threads]

	// The step under way.
	spans     []span
	positions []int // [tokens]
	tiles     []queryTile

	// The operations, kept here so that a step allocates nothing.
	product   productTask
	logits    logitsTask
	tokens    tokenTask
	attention attentionTask
}

// span is one item's rows in the matrix of a step.
type span struct {
	item  *infer.Item
	start int // position of the first row
	first int // its row
	n     int // number of rows
}

// activations are the matrices of a step, [MaxBatchTokens] rows each.
type activations struct {
	x        []float32 // [tokens][Dim] residual stream
	h        []float32 // [tokens][Dim] normalised, or about to be added to x
	q        []float32 // [tokens][Heads·HeadDim]
	k, v     []float32 // [tokens][KVHeads·HeadDim]
	att      []float32 // [tokens][Heads·HeadDim]
	gate, up []float32 // [tokens][FFN]
	cos, sin []float32 // [tokens][RopeDims/2]
}

// workerScratch is what one goroutine needs for itself.
type workerScratch struct {
	tile   []float32 // decoded weights, see simd.TileLen
	logits []float32 // [MaxBatchTokens][logitRows]
	attentionScratch
}

// activationFloats is what one token takes in activations.
func activationFloats(c *model.Config) int {
	return 2*c.Dim + 2*(c.Heads+c.KVHeads)*c.HeadDim + 2*c.FFN + c.RopeDims
}

func newExecutor(m *model.Model, spec infer.Spec, level simd.Level, threads int) (*executor, error) {
	n, c := spec.MaxBatchTokens, &m.Config
	kv, err := newKVCache(c, spec.Blocks, spec.BlockTokens)
	if err != nil {
		return nil, err
	}
	queries, keys := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	e := &executor{
		model: m, spec: spec, level: level,
		kv:          kv,
		pool:        newPool(threads),
		shareMACs:   shareMACs,
		frequencies: c.Frequencies(),
		act: activations{
			x: make([]float32, n*c.Dim), h: make([]float32, n*c.Dim),
			q: make([]float32, n*queries), att: make([]float32, n*queries),
			k: make([]float32, n*keys), v: make([]float32, n*keys),
			gate: make([]float32, n*c.FFN), up: make([]float32, n*c.FFN),
			cos: make([]float32, n*c.RopeDims/2), sin: make([]float32, n*c.RopeDims/2),
		},
		scratch:   make([]workerScratch, threads),
		spans:     make([]span, 0, n),
		positions: make([]int, n),
		tiles:     make([]queryTile, 0, n),
	}
	tile := max(simd.TileLen(c.Dim), simd.TileLen(queries), simd.TileLen(c.FFN))
	for i := range e.scratch {
		e.scratch[i] = workerScratch{
			tile:             make([]float32, tile),
			logits:           make([]float32, n*logitRows),
			attentionScratch: newAttentionScratch(c, spec.BlockTokens),
		}
	}
	e.product = productTask{e: e, parts: make([]productPart, 0, 3)}
	e.logits.e, e.tokens.e, e.attention.e = e, e, e
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
	e.pool.close()
	err := e.kv.free()
	e.model, e.kv, e.act, e.scratch = nil, nil, activations{}, nil
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
	e.spans = e.spans[:0]
}

// gather checks the items, gives the good ones their rows and looks up their
// tokens' embeddings. It returns the number of rows.
func (e *executor) gather(b *infer.Batch) (tokens int, err error) {
	for i := range b.Items {
		item := &b.Items[i]
		if item.Err = e.check(item); item.Err != nil {
			continue
		}
		if tokens+len(item.Tokens) > e.spec.MaxBatchTokens {
			return 0, fmt.Errorf("cpu: step of more than %d tokens", e.spec.MaxBatchTokens)
		}
		e.spans = append(e.spans, span{item, item.Start, tokens, len(item.Tokens)})
		dim := e.model.Dim
		for j, token := range item.Tokens {
			row := tokens + j
			e.positions[row] = item.Start + j
			e.level.Row(e.act.x[row*dim:(row+1)*dim], &e.model.Embedding, int(token))
		}
		tokens += len(item.Tokens)
	}
	return tokens, nil
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
