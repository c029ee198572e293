package cpu

import "github.com/intelliparadigm/haiku/internal/simd"

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

// rowGrain cuts rows, each of macsPerRow multiply-adds, into ranges for the
// pool. Ranges are whole multiples of the kernels' rows.
func (e *executor) rowGrain(rows, macsPerRow int) int {
	if rows*macsPerRow < e.shareMACs {
		return rows
	}
	shares := e.pool.threads() * chunksPerThread
	grain := max((rows+shares-1)/shares, e.shareMACs/(4*macsPerRow))
	return (grain + 7) &^ 7
}

// productPart is a matrix and where its products go, [tokens][Rows].
type productPart struct {
	matrix *simd.Matrix
	dst    []float32
}

// productTask multiplies matrices with the same activations. Its range runs
// over the rows of all matrices, one after the other.
type productTask struct {
	e      *executor
	parts  []productPart
	x      []float32 // [tokens][cols]
	tokens int
}

// multiply computes all parts from x [tokens][cols].
func (e *executor) multiply(x []float32, tokens int, parts ...productPart) error {
	t := &e.product
	t.parts = append(t.parts[:0], parts...)
	t.x, t.tokens = x, tokens
	rows := 0
	for _, part := range parts {
		rows += part.matrix.Rows
	}
	return e.pool.do(t, rows, e.rowGrain(rows, tokens*parts[0].matrix.Cols))
}

func (t *productTask) run(worker, lo, hi int) {
	tile := t.e.scratch[worker].tile
	for _, part := range t.parts {
		rows := part.matrix.Rows
		from, to := max(lo, 0), min(hi, rows)
		if from < to {
			t.e.level.Mul(part.dst[from:], rows, part.matrix, from, to, t.x, t.tokens, tile)
		}
		lo, hi = lo-rows, hi-rows
	}
}

// logitsTask multiplies the output matrix with the final rows, each into its
// item's Logits.
type logitsTask struct {
	e      *executor
	tokens int
}

func (e *executor) computeLogits(tokens int) error {
	e.logits.tokens = tokens
	output := &e.model.Output
	return e.pool.do(&e.logits, output.Rows, e.rowGrain(output.Rows, tokens*output.Cols))
}

func (t *logitsTask) run(worker, lo, hi int) {
	e := t.e
	scratch, output := &e.scratch[worker], &e.model.Output
	if t.tokens == 1 {
		e.level.Mul(e.spans[0].item.Logits[lo:hi], hi-lo, output, lo, hi, e.act.h, 1, scratch.tile)
		return
	}
	for row := lo; row < hi; row += logitRows {
		end := min(hi, row+logitRows)
		e.level.Mul(scratch.logits, logitRows, output, row, end, e.act.h, t.tokens, scratch.tile)
		for i, s := range e.spans {
			copy(s.item.Logits[row:end], scratch.logits[i*logitRows:])
		}
	}
}
