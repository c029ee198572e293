package cache

import (
	"cmp"
	"slices"
	"time"

	"github.com/intelliparadigm/haiku/internal/likeness"
	"github.com/intelliparadigm/haiku/internal/vectors"
)

// partition holds the questions that may be compared with each other. Most have
// few, which lie in kept alone; an index takes room for many.
type partition struct {
	index vectors.Index // nil as long as there are few
	kept  map[uint64]meant
}

// few is how many questions a partition holds without an index.
const few = 128

// meant is a question and the record of its answer.
type meant struct {
	record *Record
	text   string
	states likeness.Features // what the text states
	vector []float32         // of length one; nil where an index has it
}

type place struct {
	partition Key
	id        uint64
}

// search returns the nearest questions whose records are usable.
func (p *partition) search(query []float32, usable func(*Record) bool) []vectors.Match {
	if p.index != nil {
		matches, err := p.index.Search(nil, query, nearest, func(id uint64) bool { return usable(p.kept[id].record) })
		if err != nil {
			return nil
		}
		return matches
	}
	return p.list(query, usable)
}

// list is search without an index.
func (p *partition) list(query []float32, usable func(*Record) bool) []vectors.Match {
	query, err := vectors.Unit(query)
	if err != nil {
		return nil
	}
	matches := make([]vectors.Match, 0, few)
	rows := make([][]float32, 0, few)
	for id, kept := range p.kept {
		if len(query) == len(kept.vector) {
			matches, rows = append(matches, vectors.Match{ID: id}), append(rows, kept.vector)
		}
	}
	similarities := make([]float32, len(rows))
	vectors.Dots(similarities, rows, query)
	for i := range matches {
		matches[i].Similarity = similarities[i]
	}
	slices.SortFunc(matches, func(a, b vectors.Match) int {
		return cmp.Or(cmp.Compare(b.Similarity, a.Similarity), cmp.Compare(a.ID, b.ID))
	})
	found := matches[:0]
	for _, m := range matches {
		if len(found) < nearest && usable(p.kept[m.ID].record) {
			found = append(found, m)
		}
	}
	return found
}

// add enters a staged record, and reports whether it is in.
func (s *meanings) add(m *Meaning, r *Record) bool {
	vector, err := vectors.Unit(m.Vector)
	if err != nil {
		return false
	}
	kept := meant{record: r, text: m.Text, vector: vector}
	if s.Gate == nil {
		kept.states = likeness.Of(m.Text)
	}
	if s.budget != nil && r.trust == nil {
		r.trust = new(likeness.Entry)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.order)-s.head >= s.MaxEntries && s.last-s.swept >= uint64(s.MaxEntries/16) {
		s.sweep()
	}
	for len(s.order)-s.head >= s.MaxEntries {
		s.evict()
	}
	p := s.partitions[m.Partition]
	if p == nil {
		p = &partition{kept: make(map[uint64]meant)}
		s.partitions[m.Partition] = p
	}
	s.last++
	if !s.enter(p, s.last, kept) {
		s.tidy(m.Partition, p)
		return false
	}
	s.order = append(s.order, place{m.Partition, s.last})
	return true
}

// enter puts a question into a partition, and into an index if they are many.
func (s *meanings) enter(p *partition, id uint64, m meant) bool {
	if p.index == nil && len(p.kept) >= few {
		index, err := s.newIndex(len(m.vector))
		if err != nil {
			return false
		}
		for id, kept := range p.kept { // what has another size cannot be found any more
			if index.Add(id, kept.vector) == nil {
				kept.vector = nil
				p.kept[id] = kept
			}
		}
		p.index = index
	}
	if p.index != nil {
		if p.index.Add(id, m.vector) != nil {
			return false
		}
		m.vector = nil
	}
	p.kept[id] = m
	return true
}

func (s *meanings) newIndex(dim int) (vectors.Index, error) {
	if s.Approximate {
		return vectors.NewHNSW(dim, vectors.Options{Capacity: s.MaxEntries})
	}
	return vectors.NewFlat(dim, s.MaxEntries)
}

// sweep takes out the entries that are of no use any more: replaced, expired, or
// gone from another tier.
func (s *meanings) sweep() {
	now := time.Now()
	s.swept = s.last
	s.order = slices.DeleteFunc(s.order[s.head:], func(at place) bool {
		dead := !s.partitions[at.partition].kept[at.id].record.alive(now)
		if dead {
			s.drop(at)
		}
		return dead
	})
	s.head = 0
}

// evict drops the oldest entry, from all tiers.
func (s *meanings) evict() {
	oldest := s.order[s.head]
	s.head++
	if s.head > len(s.order)/2 && s.head > 64 {
		s.order = append(s.order[:0], s.order[s.head:]...)
		s.head = 0
	}
	s.partitions[oldest.partition].kept[oldest.id].record.Hide()
	s.drop(oldest)
}

func (s *meanings) drop(at place) {
	p := s.partitions[at.partition]
	if p.index != nil {
		p.index.Remove(at.id)
	}
	delete(p.kept, at.id)
	s.tidy(at.partition, p)
}

func (s *meanings) tidy(key Key, p *partition) {
	if len(p.kept) == 0 {
		delete(s.partitions, key)
	}
}
