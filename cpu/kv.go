package cpu

import (
	"fmt"

	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/internal/model"
)

// kvCache holds the keys and values of all positions in blocks. Within a
// block, those of one head lie together, [slot][HeadDim], as attention reads
// them.
type kvCache struct {
	kvHeads, blockTokens, headDim int
	keys, values                  [][]float32 // [layer][Blocks · kvHeads · blockTokens · headDim]
	free                          func() error
}

// kvFloatsPerToken is what one position takes, over all layers.
func kvFloatsPerToken(c *model.Config) int { return 2 * c.LayerCount * c.KVHeads * c.HeadDim }

// newKVCache takes the memory for all blocks; free gives it back.
func newKVCache(c *model.Config, blocks, blockTokens int) (*kvCache, error) {
	total := kvFloatsPerToken(c) * blocks * blockTokens
	memory, free, err := allocate(total)
	if err != nil {
		return nil, fmt.Errorf("cpu: %w: %d bytes for keys and values: %w", infer.ErrOutOfMemory, 4*total, err)
	}
	kv := &kvCache{kvHeads: c.KVHeads, blockTokens: blockTokens, headDim: c.HeadDim, free: free}
	perLayer := blocks * kv.blockFloats()
	for range c.LayerCount {
		kv.keys = append(kv.keys, memory[:perLayer:perLayer])
		kv.values = append(kv.values, memory[perLayer:2*perLayer:2*perLayer])
		memory = memory[2*perLayer:]
	}
	return kv, nil
}

// blockFloats is the size of one layer's keys, or values, of one block.
func (kv *kvCache) blockFloats() int { return kv.kvHeads * kv.headFloats() }

// headFloats is the size of one head's part of a block.
func (kv *kvCache) headFloats() int { return kv.blockTokens * kv.headDim }

// store writes the key and the value of one position, [kvHeads·headDim] each.
func (kv *kvCache) store(layer int, block int32, slot int, key, value []float32) {
	for head := range kv.kvHeads {
		at := int(block)*kv.blockFloats() + head*kv.headFloats() + slot*kv.headDim
		copy(kv.keys[layer][at:at+kv.headDim], key[head*kv.headDim:])
		copy(kv.values[layer][at:at+kv.headDim], value[head*kv.headDim:])
	}
}

// head returns the keys and values of one head in a block,
// [blockTokens][headDim] each.
func (kv *kvCache) head(layer int, block int32, head int) (keys, values []float32) {
	at := int(block)*kv.blockFloats() + head*kv.headFloats()
	end := at + kv.headFloats()
	return kv.keys[layer][at:end], kv.values[layer][at:end]
}
