package cpu

import (
	"fmt"

	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/internal/model"
	"github.com/intelliparadigm/haiku/internal/simd"
)

// kvCache holds the keys and values of all positions in blocks. Within a
// block, those of one head lie together, [slot][headDim], as attention reads
// them.
type kvCache struct {
	format                        simd.Format
	kvHeads, blockTokens, headDim int
	rowBytes                      int      // of headDim elements
	keys, values                  [][]byte // [layer][Blocks · kvHeads · blockTokens · rowBytes]
	free                          func() error
}

// newKVCache takes the memory for all blocks; free gives it back.
func newKVCache(c *model.Config, format simd.Format, blocks, blockTokens int) (*kvCache, error) {
	kv := &kvCache{format: format, kvHeads: c.KVHeads, blockTokens: blockTokens, headDim: c.HeadDim, rowBytes: format.RowBytes(c.HeadDim)}
	perLayer := blocks * kv.kvHeads * kv.headBytes()
	total := 2 * c.LayerCount * perLayer
	memory, free, err := allocate(total)
	if err != nil {
		return nil, fmt.Errorf("cpu: %w: %d bytes for keys and values: %w", infer.ErrOutOfMemory, total, err)
	}
	kv.free = free
	for range c.LayerCount {
		kv.keys = append(kv.keys, memory[:perLayer:perLayer])
		kv.values = append(kv.values, memory[perLayer:2*perLayer:2*perLayer])
		memory = memory[2*perLayer:]
	}
	return kv, nil
}

// headBytes is the size of one head's keys, or values, in a block.
func (kv *kvCache) headBytes() int { return kv.blockTokens * kv.rowBytes }

// at is where one head's part of a block begins, from a slot on.
func (kv *kvCache) at(block int32, head, slot int) int {
	return (int(block)*kv.kvHeads+head)*kv.headBytes() + slot*kv.rowBytes
}

// store writes the key and the value of one position, [kvHeads·headDim] each.
func (kv *kvCache) store(layer int, block int32, slot int, key, value []float32) {
	for head := range kv.kvHeads {
		at, from := kv.at(block, head, slot), head*kv.headDim
		simd.Encode(kv.format, kv.keys[layer][at:at:at+kv.rowBytes], key[from:from+kv.headDim])
		simd.Encode(kv.format, kv.values[layer][at:at:at+kv.rowBytes], value[from:from+kv.headDim])
	}
}

// copy copies the first slots of a block to another.
func (kv *kvCache) copy(to, from int32, slots int) {
	for layer := range kv.keys {
		for head := range kv.kvHeads {
			dst, src, n := kv.at(to, head, 0), kv.at(from, head, 0), slots*kv.rowBytes
			copy(kv.keys[layer][dst:dst+n], kv.keys[layer][src:src+n])
			copy(kv.values[layer][dst:dst+n], kv.values[layer][src:src+n])
		}
	}
}

// read decodes n positions of one head from a position on to dst,
// [n][headDim], of cache, which is keys or values. table is the sequence's.
func (kv *kvCache) read(level simd.Level, dst []float32, cache []byte, table []int32, head, position, n int) {
	for n > 0 {
		slot := position % kv.blockTokens
		run := min(n, kv.blockTokens-slot)
		at := kv.at(table[position/kv.blockTokens], head, slot)
		// Rows follow each other without a gap, and are one long row.
		row := simd.Matrix{Format: kv.format, Rows: 1, Cols: run * kv.headDim, Data: cache[at : at+run*kv.rowBytes]}
		level.Row(dst, &row, 0)
		dst, position, n = dst[run*kv.headDim:], position+run, n-run
	}
}
