package cpu

import (
	"math"

	"github.com/intelliparadigm/haiku/internal/model"
)

// Attention is computed in the order of FlashAttention-2 (Dao 2023): a tile of
// queries stays, tiles of keys pass by, each query keeps its output relative to
// the largest score so far, and divides once at the end. Tiles of keys that no
// query of the tile sees, because they lie after it or before its window, are
// never read.
//
// Keys are cut into segments of a fixed length, whose parts are put together in
// their order. So one query over a long context is work for many threads, and
// as a prompt's queries are computed by the same segments, it does not matter
// how a sequence was cut, how long its blocks are or who computed what.
const (
	queryTokens = 16  // tokens of a tile of queries
	keyTokens   = 32  // positions of a tile of keys, which begins at a multiple of it
	segmentKeys = 512 // positions of a segment
)

// maxPartials bounds the memory for parts of one layer, in floats: 64 MiB.
const maxPartials = 16 << 20

// queryTile is up to queryTokens rows of one span.
type queryTile struct {
	span     int
	first, n int // rows, counted within the span
}

// part is what a tile of queries has found in some keys. A query is one token
// and one of the query heads that share the key head.
type part struct {
	out     []float32 // [queries][HeadDim], not yet divided by total
	largest []float32 // [queries] of all scores so far
	total   []float32 // [queries] sum of exp(score - largest), 0 if no key was seen
}

// attentionScratch is for one tile of one key head, queries being up to
// queryTokens · Heads/KVHeads.
type attentionScratch struct {
	query  []float32 // [queries][HeadDim], scaled
	keys   []float32 // [keyTokens][HeadDim]
	values []float32 // [keyTokens][HeadDim]
	scores []float32 // [queries][keyTokens]
	part   part      // of a segment
	sum    part      // of the segments before it
}

func newAttentionScratch(c *model.Config) attentionScratch {
	queries := queryTokens * c.Heads / c.KVHeads
	return attentionScratch{
		query:  make([]float32, queries*c.HeadDim),
		keys:   make([]float32, keyTokens*c.HeadDim),
		values: make([]float32, keyTokens*c.HeadDim),
		scores: make([]float32, queries*keyTokens),
		part:   newPart(make([]float32, queries*(c.HeadDim+2)), queries, c.HeadDim),
		sum:    newPart(make([]float32, queries*(c.HeadDim+2)), queries, c.HeadDim),
	}
}

// newPart divides memory, [queries · (headDim+2)].
func newPart(memory []float32, queries, headDim int) part {
	outs := queries * headDim
	return part{memory[:outs], memory[outs : outs+queries], memory[outs+queries : outs+2*queries]}
}

// attentionTask computes att from q and the cache. Its range runs over all
// triples of a key head, a tile and, where the work is split, a segment, counted
// from the first that the tile sees.
type attentionTask struct {
	e        *executor
	layer    int
	segments int       // 0: not split
	queries  int       // of a part: those of the step's largest tile
	partials []float32 // [KVHeads][tiles][segments] parts
}

// attend runs the attention of one layer over all spans.
func (e *executor) attend(layer int) error {
	e.tiles = e.tiles[:0]
	window := e.model.Layers[layer].Window
	keys, longest, tokens := 0, 0, 0 // over all tokens, and of one; of a tile
	for i, s := range e.spans {
		for first := 0; first < s.n; first += queryTokens {
			e.tiles = append(e.tiles, queryTile{i, first, min(queryTokens, s.n-first)})
		}
		seen := s.start + s.n
		if window > 0 {
			seen = min(seen, window+min(queryTokens, s.n))
		}
		keys += s.n * seen
		longest = max(longest, seen)
		tokens = max(tokens, min(queryTokens, s.n))
	}
	t := &e.attention
	t.layer, t.segments, t.queries = layer, 0, tokens*e.model.Heads/e.model.KVHeads
	tasks := len(e.tiles) * e.model.KVHeads
	macs := 2 * keys * e.model.Heads * e.model.HeadDim
	if macs < e.shareMACs {
		return e.pool.do(t, tasks, tasks)
	}
	segments := (longest + segmentKeys - 1) / segmentKeys
	if window > 0 {
		segments++ // it may begin in the middle of one
	}
	if size := tasks * segments * e.partFloats(); segments > 1 && tasks < e.pool.threads()*chunksPerThread && size <= maxPartials {
		t.segments, t.partials = segments, grow(&t.partials, size)
		if err := e.pool.do(t, tasks*segments, 1); err != nil {
			return err
		}
		return e.pool.do(&e.merge, tasks, 1)
	}
	return e.pool.do(t, tasks, max(1, tasks/(e.pool.threads()*chunksPerThread)))
}

// partFloats is the size of a part.
func (e *executor) partFloats() int { return e.attention.queries * (e.model.HeadDim + 2) }

// partial is where the part of a task's segment lies while the work is split.
func (t *attentionTask) partial(task, segment int) part {
	size := t.e.partFloats()
	at := (task*t.segments + segment) * size
	return newPart(t.partials[at:at+size], t.queries, t.e.model.HeadDim)
}

func (t *attentionTask) run(worker, lo, hi int) {
	s := &t.e.scratch[worker].attentionScratch
	for i := lo; i < hi; i++ {
		if t.segments > 0 {
			v := t.e.view(t.layer, i/t.segments)
			t.e.loadQueries(s, v)
			if segment := v.begin/segmentKeys + i%t.segments; segment*segmentKeys < v.end {
				t.e.attendSegment(s, v, segment, t.partial(i/t.segments, i%t.segments))
			}
			continue
		}
		v := t.e.view(t.layer, i)
		t.e.loadQueries(s, v)
		s.sum.clear(v.queries)
		for segment := v.begin / segmentKeys; segment*segmentKeys < v.end; segment++ {
			t.e.attendSegment(s, v, segment, s.part)
			s.sum.add(s.part, v.queries, t.e.model.HeadDim)
		}
		t.e.finishQueries(v, s.sum)
	}
}

// mergeTask puts the parts of a split attention together.
type mergeTask struct{ e *executor }

func (t *mergeTask) run(worker, lo, hi int) {
	e, s := t.e, &t.e.scratch[worker].attentionScratch
	for i := lo; i < hi; i++ {
		v := e.view(e.attention.layer, i)
		s.sum.clear(v.queries)
		for segment := v.begin / segmentKeys; segment*segmentKeys < v.end; segment++ {
			s.sum.add(e.attention.partial(i, segment-v.begin/segmentKeys), v.queries, e.model.HeadDim)
		}
		e.finishQueries(v, s.sum)
	}
}

// tileView is one tile of queries with one key head.
type tileView struct {
	layer, head int
	table       []int32 // the sequence's blocks
	row         int     // of the first token
	position    int     // of the first token
	tokens      int
	group       int // query heads that share the key head
	queries     int // tokens · group, those of a token together
	window      int // 0: none
	begin, end  int // positions that some query sees
}

func (e *executor) view(layer, task int) tileView {
	tile := e.tiles[task%len(e.tiles)]
	sequence := &e.spans[tile.span]
	v := tileView{
		layer: layer, head: task / len(e.tiles), table: sequence.item.Blocks,
		row: sequence.first + tile.first, position: sequence.start + tile.first,
		tokens: tile.n, group: e.model.Heads / e.model.KVHeads, window: e.model.Layers[layer].Window,
	}
	v.queries, v.end = v.tokens*v.group, v.position+v.tokens
	if v.window > 0 {
		v.begin = max(0, v.position+1-v.window)
	}
	return v
}

// attendSegment computes what the queries find in one segment.
func (e *executor) attendSegment(s *attentionScratch, v tileView, segment int, into part) {
	headDim := e.model.HeadDim
	into.clear(v.queries)
	end := min(v.end, (segment+1)*segmentKeys)
	for at := max(v.begin/keyTokens*keyTokens, segment*segmentKeys); at < end; at += keyTokens {
		n := min(keyTokens, v.end-at)
		e.kv.read(e.level, s.keys, e.kv.keys[v.layer], v.table, v.head, at, n)
		e.kv.read(e.level, s.values, e.kv.values[v.layer], v.table, v.head, at, n)
		rows := (n + 3) &^ 3 // whole fours; the surplus is not used
		e.level.MulDense(s.scores, keyTokens, s.keys, rows, s.query, v.queries, headDim)
		for i := range v.queries {
			own := v.position + i/v.group // of the query
			from, to := 0, min(n, own+1-at)
			if v.window > 0 {
				from = max(0, own+1-v.window-at)
			}
			if from < to {
				e.accumulate(into, i, s.scores[i*keyTokens+from:i*keyTokens+to], s.values[from*headDim:])
			}
		}
	}
}

// loadQueries copies the queries that share a key head, times AttentionScale.
func (e *executor) loadQueries(s *attentionScratch, v tileView) {
	c := &e.model.Config
	width := v.group * c.HeadDim
	for i := range v.tokens {
		from := e.act.q[(v.row+i)*c.Heads*c.HeadDim+v.head*width:]
		for d, x := range from[:width] {
			s.query[i*width+d] = x * c.AttentionScale
		}
	}
}

// finishQueries divides by the totals.
func (e *executor) finishQueries(v tileView, sum part) {
	c := &e.model.Config
	for i := range v.queries {
		out := e.act.att[((v.row+i/v.group)*c.Heads+v.head*v.group+i%v.group)*c.HeadDim:]
		inverse := 1 / sum.total[i]
		for d, x := range sum.out[i*c.HeadDim : (i+1)*c.HeadDim] {
			out[d] = x * inverse
		}
	}
}

// accumulate adds values, weighted by the exponentials of scores, to query i.
func (e *executor) accumulate(p part, i int, scores, values []float32) {
	headDim := e.model.HeadDim
	if bound := float64(e.model.AttentionSoftcap); bound > 0 {
		for k, score := range scores {
			scores[k] = float32(bound * math.Tanh(float64(score)/bound))
		}
	}
	out := p.out[i*headDim : (i+1)*headDim]
	if largest := e.level.Max(scores); largest > p.largest[i] {
		p.rescale(i, headDim, largest)
	}
	p.total[i] += e.level.ExpSum(scores, p.largest[i])
	e.level.AddWeighted(out, values, scores)
}

func (p part) clear(queries int) {
	clear(p.out[:len(p.out)/len(p.largest)*queries])
	for i := range queries {
		p.largest[i], p.total[i] = float32(math.Inf(-1)), 0
	}
}

// rescale makes query i relative to another largest score.
func (p part) rescale(i, headDim int, largest float32) {
	shrink := float32(math.Exp(float64(p.largest[i] - largest)))
	out := p.out[i*headDim : (i+1)*headDim]
	for d := range out {
		out[d] *= shrink
	}
	p.total[i] *= shrink
	p.largest[i] = largest
}

// add adds what the next keys gave. A query that saw none of them keeps what it
// has, to the bit, and one that saw none before takes it as it is.
func (p part) add(q part, queries, headDim int) {
	for i := range queries {
		out, other := p.out[i*headDim:(i+1)*headDim], q.out[i*headDim:(i+1)*headDim]
		switch {
		case q.total[i] == 0:
			continue
		case p.total[i] == 0:
			copy(out, other)
			p.largest[i], p.total[i] = q.largest[i], q.total[i]
			continue
		case q.largest[i] > p.largest[i]:
			p.rescale(i, headDim, q.largest[i])
		}
		shrink := float32(math.Exp(float64(q.largest[i] - p.largest[i])))
		for d, x := range other {
			out[d] += float32(x * shrink)
		}
		p.total[i] += float32(q.total[i] * shrink)
	}
}
