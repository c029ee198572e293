package likeness

import (
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/intelliparadigm/haiku/internal/splitmix"
)

// Dimensions is the length of the vectors of [Lexical].
const Dimensions = 256

// Lexical embeds texts without a model: their words, pairs of words and groups
// of three to five letters, hashed into 256 dimensions with a sign, each
// counting with the logarithm of its frequency (feature hashing, Weinberger et
// al. 2009). It sees which letters two texts share, and nothing of what they
// mean: "car" and "automobile" are strangers to it, "increase" and "decrease"
// kin. The zero value is ready; it has no state and is safe for concurrent use.
type Lexical struct{}

// Embed returns the vector of a text, of length one; a text without a letter or
// digit has all zeros. It is a function of the text alone, in time linear in
// its length but for sorting.
func (Lexical) Embed(text string) []float32 {
	var grams []uint64
	previous := uint64(0)
	text = strings.ToLower(strings.ToValidUTF8(text, "\uFFFD"))
	for _, w := range strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) }) {
		h := fnv(w)
		grams = append(grams, h, splitmix.Mix(previous)^h)
		previous = h
		grams = letters(grams, w)
	}
	vector := make([]float32, Dimensions)
	slices.Sort(grams)
	for len(grams) > 0 {
		n := 1
		for n < len(grams) && grams[n] == grams[0] {
			n++
		}
		h := splitmix.Mix(grams[0])
		weight := float32(1 + math.Log(float64(n)))
		if h>>63 == 1 {
			weight = -weight
		}
		vector[h%Dimensions] += weight
		grams = grams[n:]
	}
	return unitLength(vector)
}

// letters appends the groups of three to five letters of a word between marks
// of its ends.
func letters(grams []uint64, w string) []uint64 {
	padded := []rune("<" + w + ">")
	for n := 3; n <= 5; n++ {
		for i := 0; i+n <= len(padded); i++ {
			grams = append(grams, fnv(string(padded[i:i+n])))
		}
	}
	return grams
}

func unitLength(v []float32) []float32 {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if sum == 0 {
		return v
	}
	scale := float32(1 / math.Sqrt(sum))
	for i := range v {
		v[i] *= scale
	}
	return v
}
