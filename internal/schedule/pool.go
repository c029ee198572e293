package schedule

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
)

// Key names the content of a full block: its tokens and everything before them.
// Keys of different content differ as far as SHA-256, cut to 128 bits, does.
type Key [16]byte

// Root is the key that stands before the first block of a sequence: sequences
// share blocks only under the same root. It is made of everything but the tokens
// that shapes keys and values, and of who may see them.
func Root(tenant string, adapter uint64, scale float32) Key {
	b := make([]byte, 0, len(tenant)+16)
	b = binary.LittleEndian.AppendUint64(b, adapter)
	b = binary.LittleEndian.AppendUint32(b, math.Float32bits(scale))
	b = append(b, tenant...)
	sum := sha256.Sum256(b)
	return Key(sum[:16])
}

// next is the key of a block after the one with key k.
func (k Key) next(tokens []int32) Key {
	var room [16 + 4*64]byte // on the stack for blocks of common size
	b := append(room[:0], k[:]...)
	for _, id := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	sum := sha256.Sum256(b)
	return Key(sum[:16])
}

// none as a block number: there is no such block.
const none = -1

// block is what the pool knows of one.
type block struct {
	users      int32 // tables it is in
	lent       bool  // the step copies from it: it is not idle, whoever uses it
	cached     bool  // key names its content, and byKey leads here
	key        Key
	prev, next int32 // neighbours in the list of idle blocks
}

// pool hands out blocks and remembers what is in those that nobody uses. Idle
// blocks form a list, from the one to be taken next to the one used last.
type pool struct {
	blocks      []block
	byKey       map[Key]int32
	first, last int32
	idle        int     // blocks in the list
	lent        []int32 // blocks that the step copies from
}

func newPool(blocks int) *pool {
	p := &pool{blocks: make([]block, blocks), byKey: make(map[Key]int32), first: none, last: none}
	for b := range p.blocks {
		p.append(int32(b))
	}
	return p
}

// append puts a block at the end of the list of idle ones.
func (p *pool) append(b int32) {
	p.blocks[b].prev, p.blocks[b].next = p.last, none
	if p.last == none {
		p.first = b
	} else {
		p.blocks[p.last].next = b
	}
	p.last = b
	p.idle++
}

// prepend puts a block at the front of the list of idle ones.
func (p *pool) prepend(b int32) {
	p.blocks[b].prev, p.blocks[b].next = none, p.first
	if p.first == none {
		p.last = b
	} else {
		p.blocks[p.first].prev = b
	}
	p.first = b
	p.idle++
}

// remove takes a block out of the list.
func (p *pool) remove(b int32) {
	at := &p.blocks[b]
	if at.prev == none {
		p.first = at.next
	} else {
		p.blocks[at.prev].next = at.next
	}
	if at.next == none {
		p.last = at.prev
	} else {
		p.blocks[at.next].prev = at.prev
	}
	p.idle--
}

// take returns an idle block for new content, and none if there is none.
func (p *pool) take() int32 {
	b := p.first
	if b == none {
		return none
	}
	p.remove(b)
	at := &p.blocks[b]
	if at.cached {
		delete(p.byKey, at.key)
		at.cached = false
	}
	at.users = 1
	return b
}

// share adds a user to a block with content.
func (p *pool) share(b int32) {
	if p.blocks[b].users == 0 {
		p.remove(b)
	}
	p.blocks[b].users++
}

// give takes a user from a block. Without users it can be found as long as it
// is not taken for something else.
func (p *pool) give(b int32) {
	at := &p.blocks[b]
	if at.users--; at.users > 0 || at.lent {
		return
	}
	if at.cached {
		p.append(b)
	} else {
		p.prepend(b)
	}
}

// lend takes a user from a block that the step copies from: until settle it is
// kept as it is.
func (p *pool) lend(b int32) {
	if at := &p.blocks[b]; !at.lent {
		at.lent = true
		p.lent = append(p.lent, b)
	}
	p.give(b)
}

// settle ends what lend began, once the step has been computed.
func (p *pool) settle() {
	for _, b := range p.lent {
		if p.blocks[b].lent = false; p.blocks[b].users == 0 {
			p.prepend(b)
		}
	}
	p.lent = p.lent[:0]
}

// giveAll gives a table back, its end first: a beginning is of use to more
// sequences than what follows it.
func (p *pool) giveAll(table []int32) {
	for i := len(table) - 1; i >= 0; i-- {
		p.give(table[i])
	}
}

// remember makes a full block known by its key, unless another already is.
func (p *pool) remember(b int32, key Key) {
	if _, known := p.byKey[key]; known || p.blocks[b].cached {
		return
	}
	p.byKey[key] = b
	p.blocks[b].cached, p.blocks[b].key = true, key
}

// shared reports whether a block has another user.
func (p *pool) shared(b int32) bool { return p.blocks[b].users > 1 }
