package likeness

import (
	"slices"
	"strconv"

	"github.com/intelliparadigm/haiku/internal/splitmix"
)

// Reason names the gate that refuses a pair, in the order in which they are
// asked.
type Reason uint8

// The gates. Unfounded is the zero Reason, of a pair that passes.
const (
	Unfounded Reason = iota
	Numbers          // numbers, units, dates, versions or their order differ
	Quotes           // a quotation differs
	Code             // an identifier, file name, address or piece of code differs
	Negation         // one denies what the other does not, or denies something else
	Direction        // opposites: increase and decrease, before and after, my and your
	Question         // who, when, how many, is, can, … differ, or the tense
	Names            // a name or acronym of one does not occur in the other
	Order            // the same words in another order: who does what to whom
	Words            // any other word of content differs
)

var reasons = [...]string{"", "numbers", "quotes", "code", "negation", "direction", "question", "names", "order", "words"}

// String returns the gate's name in lower case.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return "reason " + strconv.Itoa(int(r))
}

// maxWords is how many different words of a text are kept. Of a longer one only
// hashes remain, and [SameFacts] is as strict as [Same].
const maxWords = 128

// Features are what the gates compare of a text: some 150 bytes and four for
// each word of content. They are immutable and safe for concurrent use. They
// hold hashes of a fixed function, so that they may be stored and compared in
// another process of the same version.
type Features struct {
	numbers, quotes, code, names, content uint64 // hashes of sequences
	denied                                uint64 // hash of what is denied; 0 if that is not clear
	denials                               uint16
	question                              class
	past, future                          bool
	sides                                 sides
	named                                 []uint32 // hashes of names, sorted
	words                                 []uint32 // hashes of words of content, sorted; nil if there are too many
	long                                  bool     // there were too many
}

// Same reports whether two texts ask for the same answer as far as words can
// tell, and if not, which gate says so. After synonyms, inflection, politeness
// and some turns of phrase are evened out, every word of content must agree and
// stand in the same order. It is symmetric and reflexive.
func Same(a, b Features) (bool, Reason) {
	if ok, why := SameFacts(a, b); !ok {
		return false, why
	}
	if a.content != b.content {
		return false, Words
	}
	return true, Unfounded
}

// SameFacts is [Same] without the demand that all words agree: it compares
// numbers, quotations, code, negation, opposites, question, names and order. It
// finds more rewordings and lets more wrong ones pass: "the sky is blue" and
// "the sea is blue" differ in no fact it knows.
func SameFacts(a, b Features) (bool, Reason) {
	switch {
	case a.numbers != b.numbers:
		return false, Numbers
	case a.quotes != b.quotes:
		return false, Quotes
	case a.code != b.code:
		return false, Code
	case a.denials != b.denials, a.denied != b.denied && a.denied != 0 && b.denied != 0:
		return false, Negation
	case a.sides.conflict(b.sides, a.question == how && b.question == how):
		return false, Direction
	case a.question != b.question, a.past != b.past, a.future != b.future:
		return false, Question
	case !a.knows(b) || !b.knows(a):
		return false, Names
	case a.content != b.content && (a.long || b.long):
		return false, Words
	case a.content != b.content && slices.Equal(a.words, b.words):
		return false, Order
	}
	return true, Unfounded
}

// knows reports whether every name in b is a word of a, however it is written.
func (a Features) knows(b Features) bool {
	if a.long || b.long {
		return a.names == b.names
	}
	for _, name := range b.named {
		if _, found := slices.BinarySearch(a.words, name); !found {
			return false
		}
	}
	return true
}

// Of computes the features of a text, in time linear in its length. Any bytes
// will do.
func Of(text string) Features {
	r := reader{}
	r.read(text)
	f := Features{
		numbers: sequence(r.numbers), quotes: sequence(r.quotes), code: sequence(r.code),
		names: sequence(r.names), content: sequence(r.order()),
		denials: uint16(min(r.denials, 1<<16-1)), question: r.question, past: r.past, future: r.future, sides: r.sides,
	}
	if r.denials > 0 && !r.vague {
		f.denied = sequence(r.denied)
	}
	if f.words = unique(r.words); len(f.words) > maxWords {
		f.words, f.long = nil, true
	} else {
		f.named = unique(r.names)
	}
	return f
}

func unique(hashes []uint32) []uint32 {
	sorted := slices.Clone(hashes)
	slices.Sort(sorted)
	return slices.Clip(slices.Compact(sorted))
}

// hash is FNV-1a of 64 bits, folded to 32. It is the same in every process.
func hash(s string) uint32 {
	h := fnv(s)
	return uint32(h ^ h>>32)
}

func fnv(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// sequence is the hash of a sequence of hashes, 0 of none.
func sequence(hashes []uint32) uint64 {
	if len(hashes) == 0 {
		return 0
	}
	h := uint64(14695981039346656037)
	for _, v := range hashes {
		h = splitmix.Mix(h ^ uint64(v))
	}
	return h | 1
}
