package cpu

import (
	"math"

	"github.com/intelliparadigm/haiku/internal/model"
)

// queryTokens is the number of tokens that share a pass over the keys.
const queryTokens = 8

// queryTile is up to queryTokens rows of one span.
type queryTile struct {
	span     int
	first, n int // rows, counted within the span
}

// attentionScratch is for one tile of one key head. A query is one token and
// one of the query heads that share the key head; there are up to
// queries = queryTokens · Heads/KVHeads of them.
type attentionScratch struct {
	query   []float32 // [queries][HeadDim], scaled
	out     []float32 // [queries][HeadDim], not yet divided by total
	scores  []float32 // [queries][blockTokens]
	largest []float32 // [queries] of all scores so far
	total   []float32 // [queries] sum of exp(score - largest)
}

func newAttentionScratch(c *model.Config, blockTokens int) attentionScratch {
	queries := queryTokens * c.Heads / c.KVHeads
	return attentionScratch{
		query:   make([]float32, queries*c.HeadDim),
		out:     make([]float32, queries*c.HeadDim),
		scores:  make([]float32, queries*blockTokens),
		largest: make([]float32, queries),
		total:   make([]float32, queries),
	}
}

// attentionTask computes att from q and the cache. Its range runs over all
// pairs of a key head and a tile.
type attentionTask struct {
	e     *executor
	layer int
}

// attend runs the attention of one layer over all spans.
func (e *executor) attend(layer int) error {
	e.tiles = e.tiles[:0]
	keys := 0 // over all tokens
	for i, s := range e.spans {
		for first := 0; first < s.n; first += queryTokens {
			e.tiles = append(e.tiles, queryTile{i, first, min(queryTokens, s.n-first)})
		}
		keys += s.n * (s.start + s.n)
	}
	e.attention.layer = layer
	tasks := len(e.tiles) * e.model.KVHeads
	macs := 2 * keys * e.model.Heads * e.model.HeadDim
	grain := max(1, tasks/(e.pool.threads()*chunksPerThread))
	if macs < e.shareMACs {
		grain = tasks
	}
	return e.pool.do(&e.attention, tasks, grain)
}

func (t *attentionTask) run(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		head, tile := i/len(t.e.tiles), i%len(t.e.tiles)
		t.e.attendTile(&t.e.scratch[worker].attentionScratch, t.layer, head, t.e.tiles[tile])
	}
}

// attendTile walks the blocks of a sequence once for all queries of a tile.
// Every query sees the keys up to its own position, a block at a time, and
// keeps its sums relative to the largest score so far.
func (e *executor) attendTile(s *attentionScratch, layer, head int, tile queryTile) {
	c, sequence := &e.model.Config, &e.spans[tile.span]
	group := c.Heads / c.KVHeads
	queries := tile.n * group
	row := sequence.first + tile.first
	e.loadQueries(s, row, tile.n, head)
	position := sequence.start + tile.first // of the tile's first token
	blockTokens, window := e.kv.blockTokens, e.model.Layers[layer].Window
	begin := 0
	if window > 0 {
		begin = max(0, position+1-window) / blockTokens * blockTokens
	}
	for at := begin; at < position+tile.n; at += blockTokens {
		keys, values := e.kv.head(layer, sequence.item.Blocks[at/blockTokens], head)
		seen := min(blockTokens, (position+tile.n-at+3)&^3) // whole fours; the surplus is not used
		e.level.MulDense(s.scores, blockTokens, keys, seen, s.query, queries, c.HeadDim)
		for i := range queries {
			to, from := min(blockTokens, position+i/group+1-at), 0
			if window > 0 {
				from = max(0, position+i/group+1-window-at)
			}
			if from < to {
				e.accumulate(s, i, s.scores[i*blockTokens+from:i*blockTokens+to], values[from*c.HeadDim:])
			}
		}
	}
	for i := range queries {
		out := e.act.att[((row+i/group)*c.Heads+head*group+i%group)*c.HeadDim:]
		inverse := 1 / s.total[i]
		for d, v := range s.out[i*c.HeadDim : (i+1)*c.HeadDim] {
			out[d] = v * inverse
		}
	}
}

// loadQueries copies the queries of n rows that share a key head, scaled by
// AttentionScale, and clears the sums.
func (e *executor) loadQueries(s *attentionScratch, row, n, head int) {
	c := &e.model.Config
	width := c.Heads / c.KVHeads * c.HeadDim // of the heads that share the key head
	scale := c.AttentionScale
	for i := range n {
		from := e.act.q[(row+i)*c.Heads*c.HeadDim+head*width:]
		for d, v := range from[:width] {
			s.query[i*width+d] = v * scale
		}
	}
	clear(s.out[:n*width])
	for i := range n * c.Heads / c.KVHeads {
		s.largest[i], s.total[i] = float32(math.Inf(-1)), 0
	}
}

// accumulate adds one block's values, weighted by the exponentials of scores,
// to query i.
func (e *executor) accumulate(s *attentionScratch, i int, scores, values []float32) {
	headDim := e.kv.headDim
	if bound := float64(e.model.AttentionSoftcap); bound > 0 {
		for k, score := range scores {
			scores[k] = float32(bound * math.Tanh(float64(score)/bound))
		}
	}
	out := s.out[i*headDim : (i+1)*headDim]
	if largest := e.level.Max(scores); largest > s.largest[i] {
		shrink := float32(math.Exp(float64(s.largest[i] - largest)))
		for d := range out {
			out[d] *= shrink
		}
		s.total[i] *= shrink
		s.largest[i] = largest
	}
	s.total[i] += e.level.ExpSum(scores, s.largest[i])
	e.level.AddWeighted(out, values, scores)
}
