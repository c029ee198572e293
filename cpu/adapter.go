package cpu

import (
	"context"
	"fmt"
	"sync"

	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/internal/lora"
	"github.com/intelliparadigm/haiku/internal/model"
)

// target is one of a layer's matrices that an adapter may change.
type target uint8

const (
	targetQuery target = iota
	targetKey
	targetValue
	targetAttentionOut
	targetGate
	targetUp
	targetDown
	targetCount
)

// targetNames are the names of the tensors within a layer.
var targetNames = [targetCount]string{
	"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down",
}

// adapterRows is the number of rows that are taken through a pair at once.
const adapterRows = 16

// adapter is a low-rank adapter bound to the model. It is immutable.
type adapter struct {
	pairs [][targetCount]*lora.Pair // [LayerCount], nil where it changes nothing
}

// adapterSet is what may be looked up and changed by any goroutine.
type adapterSet struct {
	mu   sync.Mutex
	byID map[infer.AdapterID]*adapter
}

var _ infer.AdapterExecutor = (*executor)(nil)

// LoadAdapter binds file to the model as id.
func (e *executor) LoadAdapter(ctx context.Context, id infer.AdapterID, file *infer.AdapterFile) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	a, err := bindAdapter(e.shape, file)
	if err != nil {
		return fmt.Errorf("cpu: %w: %w", infer.ErrUnsupportedModel, err)
	}
	e.adapters.mu.Lock()
	defer e.adapters.mu.Unlock()
	switch {
	case e.adapters.byID == nil:
		return fmt.Errorf("cpu: load adapter: %w", infer.ErrClosed)
	case id == 0 || e.adapters.byID[id] != nil:
		return fmt.Errorf("cpu: adapter id %d is in use or not one", id)
	}
	e.adapters.byID[id] = a
	return nil
}

// UnloadAdapter forgets id.
func (e *executor) UnloadAdapter(id infer.AdapterID) {
	e.adapters.mu.Lock()
	defer e.adapters.mu.Unlock()
	delete(e.adapters.byID, id)
}

// lookup returns the adapter of an item, nil for none.
func (s *adapterSet) lookup(item *infer.Item) (*adapter, error) {
	if item.Adapter == 0 {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a, found := s.byID[item.Adapter]
	if !found {
		return nil, fmt.Errorf("cpu: sequence %d: adapter %d is not loaded", item.Seq, item.Adapter)
	}
	return a, nil
}

// shape is what binding an adapter needs to know of a model. It outlives the
// weights.
type shape struct {
	model.Config
}

// matrix returns the shape of a target.
func (s shape) matrix(t target) (rows, cols int) {
	queries, keys := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	switch t {
	case targetQuery:
		return queries, s.Dim
	case targetKey, targetValue:
		return keys, s.Dim
	case targetAttentionOut:
		return s.Dim, queries
	case targetGate, targetUp:
		return s.FFN, s.Dim
	default:
		return s.Dim, s.FFN
	}
}

// place is a target of one layer.
type place struct {
	layer int
	target
}

// places returns where each tensor that can be adapted belongs. Those of
// experts cannot.
func (s shape) places() map[string]place {
	all := make(map[string]place, s.LayerCount*int(targetCount))
	for layer := range s.LayerCount {
		for t := range targetCount {
			if s.Experts == 0 || t < targetGate {
				all[fmt.Sprintf("blk.%d.%s.weight", layer, targetNames[t])] = place{layer, t}
			}
		}
	}
	return all
}

func bindAdapter(s shape, file *infer.AdapterFile) (*adapter, error) {
	places := s.places()
	pairs, err := file.Bind(lora.Base{
		Architecture: s.Architecture,
		Heads:        s.Heads, KVHeads: s.KVHeads, HeadDim: s.HeadDim,
		Interleaved: !s.RopeHalves,
		Shape: func(tensor string) (rows, cols int, ok bool) {
			at, ok := places[tensor]
			rows, cols = s.matrix(at.target)
			return rows, cols, ok
		},
	})
	if err != nil {
		return nil, err
	}
	a := &adapter{pairs: make([][targetCount]*lora.Pair, s.LayerCount)}
	for i := range pairs {
		at := places[pairs[i].Tensor]
		a.pairs[at.layer][at.target] = &pairs[i]
	}
	return a, nil
}

// adaptTask adds scale·B·A·x to the products of the rows that have an adapter.
type adaptTask struct {
	e     *executor
	layer int
	x     []float32 // [tokens][cols]
	parts []productPart
}

// adapt finishes the products of one layer's matrices with x [tokens][cols].
func (e *executor) adapt(layer int, x []float32, parts []productPart) error {
	rows, macs := 0, 0
	for _, s := range e.spans {
		if s.adapter == nil {
			continue
		}
		rows = s.first + s.n
		for _, p := range parts {
			if pair := s.adapter.pairs[layer][p.target]; pair != nil {
				macs += s.n * pair.Rank * (pair.In + pair.Out)
			}
		}
	}
	if macs == 0 {
		return nil
	}
	t := &e.adaption
	t.layer, t.x, t.parts = layer, x, append(t.parts[:0], parts...)
	grain := rows
	if macs >= e.shareMACs {
		grain = max(1, rows*(e.shareMACs/4)/macs)
	}
	return e.pool.do(t, rows, grain)
}

func (t *adaptTask) run(worker, lo, hi int) {
	for _, s := range t.e.spans {
		if s.adapter == nil {
			continue
		}
		for from := max(lo, s.first); from < min(hi, s.first+s.n); from += adapterRows {
			rows := min(adapterRows, min(hi, s.first+s.n)-from)
			for _, p := range t.parts {
				if pair := s.adapter.pairs[t.layer][p.target]; pair != nil {
					t.add(&t.e.scratch[worker], pair, s.scale*pair.Scale, p.dst[from*pair.Out:], t.x[from*pair.In:], rows)
				}
			}
		}
	}
}

// add adds scale·B·A·x to dst [rows][Out], x being [rows][In].
func (t *adaptTask) add(w *workerScratch, pair *lora.Pair, scale float32, dst, x []float32, rows int) {
	low := grow(&w.low, rows*pair.Rank)
	t.e.level.MulDense(low, pair.Rank, pair.A, pair.Rank, x, rows, pair.In)
	delta := grow(&w.delta, rows*pair.Out)
	t.e.level.MulDense(delta, pair.Out, pair.B, pair.Out, low, rows, pair.Rank)
	for r := range rows {
		t.e.level.AddWeighted(dst[r*pair.Out:(r+1)*pair.Out], delta[r*pair.Out:(r+1)*pair.Out], []float32{scale})
	}
}

// grow returns n floats of the memory that s keeps for it.
func grow(s *[]float32, n int) []float32 {
	if cap(*s) < n {
		*s = make([]float32, n)
	}
	return (*s)[:n]
}
