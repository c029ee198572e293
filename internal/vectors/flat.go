package vectors

import (
	"fmt"
	"math"
	"sync"

	"github.com/intelliparadigm/haiku/internal/simd"
)

// Flat is an exact [Index]: a search reads every vector once, at the speed of
// memory, and allocates nothing. Vectors lie without gaps: the last one moves
// to where one was removed.
type Flat struct {
	capacity int
	level    simd.Level
	scans    spares[scan]

	mu   sync.RWMutex
	rows rows
	ids  []uint64       // of each row
	slot map[uint64]int // of each id
}

// scan is what one search works with.
type scan struct {
	query []float32
	sims  [chunkRows]float32
	best  best
}

// NewFlat returns an empty index for vectors of dim elements. It refuses to hold
// more than capacity vectors; 0 is no limit. Each takes 4·dim bytes and some 40
// more, and 256 are allocated at a time.
func NewFlat(dim, capacity int) (*Flat, error) {
	if err := checkSize(dim, capacity); err != nil {
		return nil, err
	}
	return &Flat{capacity: capacity, level: simd.Best(), rows: rows{dim: dim}, slot: map[uint64]int{}}, nil
}

func checkSize(dim, capacity int) error {
	if dim <= 0 || capacity < 0 || capacity > math.MaxInt32 {
		return fmt.Errorf("%w: %d dimensions, capacity %d", ErrOptions, dim, capacity)
	}
	return nil
}

// Add implements [Index].
func (f *Flat) Add(id uint64, vector []float32) error {
	s := f.scans.get()
	defer f.scans.put(s)
	row, err := unit(s.query[:0], vector, f.rows.dim)
	if s.query = row; err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	slot, known := f.slot[id]
	if !known {
		if slot = len(f.ids); f.capacity > 0 && slot >= f.capacity {
			return fmt.Errorf("%w: it holds %d vectors", ErrFull, slot)
		}
		f.rows.fit(slot + 1)
		f.ids = append(f.ids, id)
		f.slot[id] = slot
	}
	copy(f.rows.row(uint32(slot)), row)
	return nil
}

// Remove implements [Index].
func (f *Flat) Remove(id uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	slot, known := f.slot[id]
	if !known {
		return false
	}
	last := len(f.ids) - 1
	if slot != last {
		copy(f.rows.row(uint32(slot)), f.rows.row(uint32(last)))
		f.ids[slot] = f.ids[last]
		f.slot[f.ids[slot]] = slot
	}
	delete(f.slot, id)
	f.ids = f.ids[:last]
	f.rows.fit(last)
	return true
}

// Len implements [Index].
func (f *Flat) Len() int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return len(f.ids)
}

// Search implements [Index].
func (f *Flat) Search(dst []Match, query []float32, k int, accept func(id uint64) bool) ([]Match, error) {
	s := f.scans.get()
	defer f.scans.put(s)
	row, err := unit(s.query[:0], query, f.rows.dim)
	if s.query = row; err != nil || k <= 0 {
		return dst, err
	}
	s.best = best{k: k, heap: s.best.heap[:0]}
	f.mu.RLock()
	defer f.mu.RUnlock()
	for first := 0; first < len(f.ids); first += chunkRows {
		n := min(chunkRows, len(f.ids)-first)
		f.level.MulDense(s.sims[:n], n, f.rows.chunks[first/chunkRows], n, s.query, 1, f.rows.dim)
		s.sift(f.ids[first:first+n], accept)
	}
	return s.best.appendTo(dst), nil
}

// sift offers the vectors whose similarities were computed. Most are worse than
// what was found before and cost one comparison.
func (s *scan) sift(ids []uint64, accept func(id uint64) bool) {
	worst := float32(math.Inf(-1))
	if s.best.full() {
		worst = s.best.heap[0].Similarity
	}
	for i, id := range ids {
		if sim := s.sims[i]; sim >= worst && (accept == nil || accept(id)) {
			s.best.offer(Match{ID: id, Similarity: sim})
			if s.best.full() {
				worst = s.best.heap[0].Similarity
			}
		}
	}
}
