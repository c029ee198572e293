package likeness

import (
	"slices"
	"strconv"
)

// maxTurn is how many items may be turned around: a chain of "of" is longer only
// in texts made to take long.
const maxTurn = 32

// arrangement is the sequence of what has content in a text, brought into one
// order where English has two for the same: "the capital of France" becomes
// "France capital", and alternatives are sorted.
type arrangement struct {
	items     []uint32
	run       int // where the present group of adjacent words begins
	ofFrom    int // where the group before "of" begins, plus one; 0 outside
	orAt      int // the index of the first alternative, plus one; 0 outside
	symmetric bool
}

// put appends an item.
func (a *arrangement) put(h uint32) {
	a.items = append(a.items, h)
	if a.orAt > 0 && len(a.items) >= a.orAt+1 {
		i := a.orAt - 1
		if a.items[i] > a.items[i+1] {
			a.items[i], a.items[i+1] = a.items[i+1], a.items[i]
		}
		a.orAt = 0
	}
}

// end closes a group of words.
func (a *arrangement) end() {
	a.turn()
	a.run = len(a.items)
}

// turn puts the group behind "of" before the one in front of it.
func (a *arrangement) turn() {
	if a.ofFrom > 0 && a.run < len(a.items) && len(a.items)-a.ofFrom < maxTurn {
		from := a.ofFrom - 1
		turned := slices.Concat(a.items[a.run:], a.items[from:a.run])
		copy(a.items[from:], turned)
		a.run, a.ofFrom = from, 0
	}
}

// of notes that what follows belongs to the group before it.
func (a *arrangement) of() {
	a.turn()
	if a.run < len(a.items) {
		a.ofFrom = a.run + 1
	}
	a.run = len(a.items)
}

// alternative notes that the items before and behind may change places.
func (a *arrangement) alternative() {
	if len(a.items) > 0 {
		a.orAt = len(a.items)
	}
}

func (a *arrangement) order() []uint32 { return a.items }

func plainInt(v int64) string { return strconv.FormatInt(v, 10) }
