package vectors

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/intelliparadigm/haiku/internal/simd"
)

// Options shape an [HNSW]. The zero value is a good start.
type Options struct {
	// M is how many neighbours a vector is linked to when it comes in, at least
	// 4. Those link back, up to M of them, or 2·M on the lowest level.
	// 0 means 16.
	M int
	// EfConstruction is how many candidates are kept on the way to those
	// neighbours: more make a better graph and a slower Add. 0 means 200.
	EfConstruction int
	// Ef is how many candidates a search keeps, at least the k it is asked for:
	// more find more and take longer. Of 10⁵ random vectors of 384 elements 200
	// find the nearest to a query that is near one of them; an independent query,
	// whose nearest is hardly nearer than others, needs 4,096, and is slower then
	// than with [Flat]. 0 means 200.
	Ef int
	// Capacity is the number of vectors after which Add fails. 0 is no limit.
	Capacity int
	// Seed chooses the levels: the same calls in the same order build the same
	// graph.
	Seed uint64
}

// HNSW is an approximate [Index]: a hierarchy of graphs in which a search walks
// to ever nearer vectors, after Malkov and Yashunin, "Efficient and robust
// approximate nearest neighbor search using Hierarchical Navigable Small World
// graphs" (arXiv 1603.09320). Links are chosen by the paper's heuristic
// (algorithm 4, with discarded candidates filling what is left).
//
// The paper has no deletion. Here every node also knows who links to it, so a
// removed one is first a tombstone, which searches pass through and do not
// return; then whoever links to it gets another link, a few with every write,
// and when none is left its place is free. A node that would lose its last
// incoming link keeps it.
//
// Searches run beside each other and beside the writer while that computes. To
// write links it waits for the searches under way, and those that come meanwhile
// wait with it. Writers wait for each other. A search allocates nothing.
//
// Each vector takes 4·dim bytes and, with M = 16, about 600 for links. Removed
// ones take theirs until their links are mended: at most 32 vectors and a
// sixteenth of the live ones at a time.
type HNSW struct {
	opts   Options
	level  simd.Level
	walks  spares[walk]
	writer sync.Mutex // held by Add and Remove from beginning to end
	levels *rand.Rand // the writer's
	edit   walk       // the writer's

	// mu guards what follows. Only the writer changes it, so the writer reads
	// without the lock.
	mu    sync.RWMutex
	rows  rows
	nodes []node
	slot  map[uint64]uint32 // of each live id
	free  []uint32          // slots of vacant nodes
	dead  []uint32          // slots of tombstones, the oldest first
	entry uint32            // where searches begin; of the highest level
	top   int               // the level of entry; -1 when there is no node
}

// state is where a node's slot is in its life: vacant, live, dead, vacant.
type state uint8

const (
	vacant state = iota
	live
	dead // removed, and still linked
)

// node is a vector in the graph. Its row has the number of its slot.
type node struct {
	id    uint64
	state state
	base  layer
	upper []layer // of levels 1 and up
}

// layer is a node's part in the graph of one level.
type layer struct {
	out []link   // the most similar first
	in  []uint32 // nodes whose out has this one, in no order
}

// link is a way to another node.
type link struct {
	to  uint32
	sim float32 // similarity of both ends
}

func (n *node) at(level int) *layer {
	if level == 0 {
		return &n.base
	}
	return &n.upper[level-1]
}

// NewHNSW returns an empty index for vectors of dim elements.
func NewHNSW(dim int, opts Options) (*HNSW, error) {
	if err := checkSize(dim, opts.Capacity); err != nil {
		return nil, err
	}
	opts.M, opts.EfConstruction, opts.Ef = cmp.Or(opts.M, 16), cmp.Or(opts.EfConstruction, 200), cmp.Or(opts.Ef, 200)
	if opts.M < 4 || opts.EfConstruction < 1 || opts.Ef < 1 {
		return nil, fmt.Errorf("%w: M %d, EfConstruction %d, Ef %d", ErrOptions, opts.M, opts.EfConstruction, opts.Ef)
	}
	return &HNSW{
		opts: opts, level: simd.Best(), levels: rand.New(rand.NewPCG(opts.Seed, 0)),
		rows: rows{dim: dim}, slot: map[uint64]uint32{}, top: -1,
	}, nil
}

// maxLinks is how many links a node may have on a level.
func (h *HNSW) maxLinks(level int) int {
	if level == 0 {
		return 2 * h.opts.M
	}
	return h.opts.M
}

// randomLevel draws the level of a new node: each is 1/M as likely as the one
// below (section 4.1 of the paper).
func (h *HNSW) randomLevel() int {
	return int(-math.Log(1-h.levels.Float64()) / math.Log(float64(h.opts.M)))
}

// Len implements [Index].
func (h *HNSW) Len() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.slot)
}

// Search implements [Index]; it keeps Options.Ef candidates. Where accept takes
// few of the vectors near the query, it looks at many more, and at all of them
// where it takes none.
func (h *HNSW) Search(dst []Match, query []float32, k int, accept func(id uint64) bool) ([]Match, error) {
	return h.SearchEf(dst, query, k, h.opts.Ef, accept)
}

// SearchEf is Search with a number of candidates of its own.
func (h *HNSW) SearchEf(dst []Match, query []float32, k, ef int, accept func(id uint64) bool) ([]Match, error) {
	w := h.walks.get()
	defer h.walks.put(w)
	row, err := unit(w.query[:0], query, h.rows.dim)
	if w.query = row; err != nil || k <= 0 {
		return dst, err
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.top < 0 {
		return dst, nil
	}
	// The entry is a second start, so that all that can be reached from there is
	// found where ef allows.
	w.starts = append(w.starts[:0], h.descend(w, w.query, 0))
	if w.starts[0].to != h.entry {
		w.fresh = append(w.fresh[:0], h.entry)
		h.similarities(w, w.query)
		w.starts = append(w.starts, link{h.entry, w.sims[0]})
	}
	h.explore(w, w.query, w.starts, 0, max(k, ef), accept)
	w.best = best{k: k, heap: w.best.heap[:0]}
	for _, l := range w.found {
		w.best.offer(Match{ID: h.nodes[l.to].id, Similarity: l.sim})
	}
	return w.best.appendTo(dst), nil
}
