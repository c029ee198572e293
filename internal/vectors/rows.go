package vectors

// chunkRows is how many vectors lie in one piece of memory: enough that a scan
// runs at memory speed, few enough that an index with few vectors is small.
const chunkRows = 256

// rows are vectors [n][dim] in chunks, so that growing copies nothing and
// vectors do not move while they are read.
type rows struct {
	dim    int
	chunks [][]float32 // each [chunkRows][dim]
}

// row is the memory of vector i.
func (r *rows) row(i uint32) []float32 {
	at := int(i%chunkRows) * r.dim
	return r.chunks[i/chunkRows][at : at+r.dim : at+r.dim]
}

// fit makes room for exactly n vectors, in whole chunks; one chunk more stays,
// so that a size that goes up and down by one does not allocate.
func (r *rows) fit(n int) {
	need := (n + chunkRows - 1) / chunkRows
	for len(r.chunks) < need {
		r.chunks = append(r.chunks, make([]float32, chunkRows*r.dim))
	}
	for len(r.chunks) > need+1 {
		r.chunks[len(r.chunks)-1] = nil
		r.chunks = r.chunks[:len(r.chunks)-1]
	}
}
