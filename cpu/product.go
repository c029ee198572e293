package cpu

import (
	"math"

	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/internal/simd"
)

// shareMACs is the number of multiply-adds below which an operation is not
// shared: ten to twenty microseconds of one core, against one or two that it
// costs to hand work to a goroutine that is awake. Ranges are no smaller than
// a quarter of it.
const shareMACs = 256 << 10

// chunksPerThread is how finely work is cut, so that a thread that was slow or
// late leaves its share to the others.
const chunksPerThread = 4

// logitRows is the number of rows of the output matrix computed at once for
// several tokens.
const logitRows = 64

// rowGrain cuts rows, which take macs multiply-adds together, into ranges for
// the pool. Ranges are whole multiples of the kernels' rows.
func (e *executor) rowGrain(rows, macs int) int {
	if macs < e.shareMACs {
		return rows
	}
	shares := e.pool.threads() * chunksPerThread
	grain := max((rows+shares-1)/shares, rows*(e.shareMACs/4)/macs)
	return (grain + 7) &^ 7
}

// productPart is a matrix, which of its layer's it is, and where its products
// go, [tokens][Rows].
type productPart struct {
	target target
	matrix *simd.Matrix
	dst    []float32
}

// multiply computes all parts from x [tokens][cols], with the adapters that
// the rows ask for.
func (e *executor) multiply(layer int, x []float32, tokens int, parts ...productPart) error {
	t := &e.product
	t.jobs = t.jobs[:0]
	for _, p := range parts {
		t.jobs = append(t.jobs, productJob{p.matrix, p.dst, x, tokens})
	}
	if err := e.multiplyJobs(); err != nil {
		return err
	}
	return e.adapt(layer, x, parts)
}

// productJob is a matrix, its inputs and where its products go.
type productJob struct {
	matrix *simd.Matrix
	dst    []float32 // [tokens][Rows]
	x      []float32 // [tokens][Cols]
	tokens int
}

// productTask does its jobs. Its range runs over the rows of all matrices, one
// after the other.
type productTask struct {
	e    *executor
	jobs []productJob
}

func (e *executor) multiplyJobs() error {
	rows, macs := 0, 0
	for _, j := range e.product.jobs {
		rows += j.matrix.Rows
		macs += j.matrix.Rows * j.matrix.Cols * j.tokens
	}
	return e.pool.do(&e.product, rows, e.rowGrain(rows, macs))
}

func (t *productTask) run(worker, lo, hi int) {
	tile := t.e.scratch[worker].tile
	for i := range t.jobs {
		j := &t.jobs[i]
		rows := j.matrix.Rows
		from, to := max(lo, 0), min(hi, rows)
		if from < to {
			t.e.level.Mul(j.dst[from:], rows, j.matrix, from, to, j.x, j.tokens, tile)
		}
		lo, hi = lo-rows, hi-rows
	}
}

// logitsTask multiplies the output matrix with the first rows of h, one for
// each item, into the item's Logits.
type logitsTask struct {
	e     *executor
	items []*infer.Item
}

func (e *executor) computeLogits() error {
	output := &e.model.Output
	return e.pool.do(&e.logits, output.Rows, e.rowGrain(output.Rows, len(e.logits.items)*output.Rows*output.Cols))
}

func (t *logitsTask) run(worker, lo, hi int) {
	e := t.e
	scratch, output := &e.scratch[worker], &e.model.Output
	switch len(t.items) {
	case 0:
		return
	case 1:
		e.level.Mul(t.items[0].Logits[lo:hi], hi-lo, output, lo, hi, e.act.h, 1, scratch.tile)
	default:
		for row := lo; row < hi; row += logitRows {
			end := min(hi, row+logitRows)
			e.level.Mul(scratch.logits, logitRows, output, row, end, e.act.h, len(t.items), scratch.tile)
			for i, item := range t.items {
				copy(item.Logits[row:end], scratch.logits[i*logitRows:])
			}
		}
	}
	if bound := float64(e.model.FinalSoftcap); bound > 0 {
		for _, item := range t.items {
			for i, l := range item.Logits[lo:hi] {
				item.Logits[lo+i] = float32(bound * math.Tanh(float64(l)/bound))
			}
		}
	}
}
