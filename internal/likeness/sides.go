package likeness

// sides are the members of opposites, prepositions and persons that occur in a
// text, one bit each.
type sides struct {
	opposite    [4]uint64
	preposition uint32
	person      uint8
}

// groups of prepositions, as bits: those of one group exclude each other.
var prepositionGroups = []uint32{0b111, 0b11 << 3, 0b11 << 5, 0b11 << 7, 0b11 << 9, 0b11 << 11, 0b11 << 13, 0b111111 << 15, 0b11 << 21, 0b11 << 23}

func (s *sides) add(word, stem string) {
	for _, w := range [2]string{word, stem} {
		for _, bit := range opposites[w] {
			s.opposite[bit/64] |= 1 << (bit % 64)
		}
	}
	for _, bit := range prepositions[word] {
		s.preposition |= 1 << bit
	}
	for _, bit := range persons[word] {
		s.person |= 1 << bit
	}
}

// conflict reports whether one text has a side that the other has not. It is
// symmetric.
func (s sides) conflict(t sides, how bool) bool {
	if s.opposite != t.opposite {
		return true
	}
	for _, group := range prepositionGroups {
		mine, other := s.preposition&group, t.preposition&group
		if mine != other && mine != 0 && other != 0 {
			return true
		}
	}
	return !how && s.person != t.person && s.person != 0 && t.person != 0
}
