package model

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/intelliparadigm/haiku/internal/simd"
)

// Requantise converts the matrices of all layers to format, in memory of its
// own, with as many goroutines as threads. As is usual for weights of 8 bits,
// embedding, output and routers stay as they are. A matrix whose rows are no
// whole blocks of format is an error that matches [ErrUnsupported]; m is then
// unchanged.
func (m *Model) Requantise(format simd.Format, threads int) error {
	layers := make([]Layer, len(m.Layers))
	for i, l := range m.Layers {
		l.Experts = append([]Expert(nil), l.Experts...)
		layers[i] = l
		for _, matrix := range layers[i].matrices() {
			if format.RowBytes(matrix.Cols) == 0 {
				return fmt.Errorf("%w: layer %d has rows of %d weights, which are no whole blocks of %s", ErrUnsupported, i, matrix.Cols, format)
			}
		}
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range max(1, threads) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(layers); i = int(next.Add(1)) - 1 {
				for _, matrix := range layers[i].matrices() {
					*matrix = requantised(matrix, format)
				}
			}
		})
	}
	wg.Wait()
	m.Layers = layers
	return nil
}

// matrices are those of a layer that every token multiplies, or may.
func (l *Layer) matrices() []*simd.Matrix {
	all := []*simd.Matrix{&l.Query.Matrix, &l.Key.Matrix, &l.Value.Matrix, &l.AttentionOut.Matrix}
	for i := range l.Experts {
		e := &l.Experts[i]
		all = append(all, &e.Gate, &e.Up, &e.Down)
	}
	return all
}

func requantised(m *simd.Matrix, format simd.Format) simd.Matrix {
	row := make([]float32, m.Cols)
	data := make([]byte, 0, m.Rows*format.RowBytes(m.Cols))
	for r := range m.Rows {
		simd.Portable.Row(row, m, r)
		data = simd.Encode(format, data, row)
	}
	return simd.Matrix{Format: format, Rows: m.Rows, Cols: m.Cols, Data: data}
}
