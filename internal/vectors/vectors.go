// Package vectors finds the nearest of many embeddings by cosine similarity.
//
// Two structures answer the same questions behind [Index]. [Flat] compares the
// query with every vector: exact, and at some 10⁵ vectors still milliseconds.
// [HNSW] walks a graph and looks at a small part of them: it may miss, how
// often depends on the data and on Options.Ef, and is worth it where vectors
// have structure, as those of texts do, and are many.
//
// Vectors are scaled to length one when they come in, so a similarity is a dot
// product, between -1 and 1 up to rounding. Both structures compute it in the
// same order, so the same pair has the same similarity to the last bit in
// either of them.
//
// Partitions are the caller's: one index for each, or the accept function.
// So is eviction: a full index refuses with [ErrFull].
package vectors

import (
	"errors"
	"fmt"

	"github.com/intelliparadigm/haiku/internal/simd"
	"math"
)

// Errors of the package; they come wrapped with what was wrong.
var (
	// ErrDimension is a vector of another length than the index's.
	ErrDimension = errors.New("vectors: wrong number of dimensions")
	// ErrNotFinite is a vector with an element that is infinite or no number.
	ErrNotFinite = errors.New("vectors: not finite")
	// ErrZero is a vector without a direction.
	ErrZero = errors.New("vectors: zero vector")
	// ErrFull is an index that holds as many vectors as its capacity.
	ErrFull = errors.New("vectors: index is full")
	// ErrOptions is an option that cannot work.
	ErrOptions = errors.New("vectors: invalid options")
)

// Match is a vector found, by the id it was added under.
type Match struct {
	ID uint64
	// Similarity is the cosine of the angle to the query.
	Similarity float32
}

// before orders matches: the most similar first, equal ones by id.
func (m Match) before(other Match) bool {
	if m.Similarity != other.Similarity {
		return m.Similarity > other.Similarity
	}
	return m.ID < other.ID
}

// Index is a set of vectors, each under an id. All methods may be called from
// any number of goroutines.
type Index interface {
	// Add puts a copy of vector into the index under id, in the place of what
	// was there. Errors match ErrDimension, ErrNotFinite, ErrZero or ErrFull and
	// leave the index as it was. Once it has returned, every search finds the
	// vector or, in an approximate index, may find it.
	Add(id uint64, vector []float32) error
	// Remove takes the vector of id away and reports whether there was one. No
	// search that begins afterwards returns it.
	Remove(id uint64) bool
	// Search appends to dst the k vectors most similar to query of those whose
	// id accept takes (nil takes all): best first, ties by id, fewer where there
	// are not as many. accept is called while the index is locked: it must be
	// quick and must not use the index. Errors are those of Add but for ErrFull.
	Search(dst []Match, query []float32, k int, accept func(id uint64) bool) ([]Match, error)
	// Len is the number of vectors.
	Len() int
}

// Unit returns vector scaled to length one. One that has no direction is an error:
// [ErrZero] or [ErrNotFinite].
func Unit(vector []float32) ([]float32, error) {
	return unit(make([]float32, 0, len(vector)), vector, len(vector))
}

// unit appends vector, scaled to length one, to dst.
func unit(dst, vector []float32, dim int) ([]float32, error) {
	if len(vector) != dim {
		return dst, fmt.Errorf("%w: %d, the index has %d", ErrDimension, len(vector), dim)
	}
	var sum float64
	for i, v := range vector {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return dst, fmt.Errorf("%w: element %d is %v", ErrNotFinite, i, v)
		}
		sum += float64(v) * float64(v)
	}
	if sum == 0 {
		return dst, ErrZero
	}
	scale := 1 / math.Sqrt(sum)
	for _, v := range vector {
		dst = append(dst, float32(float64(v)*scale))
	}
	return dst, nil
}

// Dots computes the dot product of query with each of the rows, which are as long
// as it, into dst: for rows too few for an index.
func Dots(dst []float32, rows [][]float32, query []float32) {
	level := simd.Best()
	var four [4]float32
	for len(rows) >= 4 {
		level.Dot4(&four, rows[0], rows[1], rows[2], rows[3], query)
		copy(dst, four[:])
		dst, rows = dst[4:], rows[4:]
	}
	if n := len(rows); n > 0 {
		last := [4][]float32{rows[0], rows[0], rows[0], rows[0]}
		copy(last[:], rows)
		level.Dot4(&four, last[0], last[1], last[2], last[3], query)
		copy(dst, four[:n])
	}
}
