package infer

// blockPool hands out the KV blocks of an executor. It belongs to the engine's
// loop.
type blockPool struct {
	blockTokens int
	free        []int32 // used as a stack
	total       int
}

func newBlockPool(spec Spec) *blockPool {
	p := &blockPool{blockTokens: spec.BlockTokens, total: spec.Blocks}
	for b := spec.Blocks - 1; b >= 0; b-- {
		p.free = append(p.free, int32(b))
	}
	return p
}

// need is the number of blocks that hold that many positions.
func (p *blockPool) need(positions int) int {
	return (positions + p.blockTokens - 1) / p.blockTokens
}

// take returns n blocks, or false and none if there are fewer.
func (p *blockPool) take(n int) ([]int32, bool) {
	if n > len(p.free) {
		return nil, false
	}
	at := len(p.free) - n
	blocks := append([]int32(nil), p.free[at:]...)
	p.free = p.free[:at]
	return blocks, true
}

func (p *blockPool) give(blocks []int32) { p.free = append(p.free, blocks...) }
