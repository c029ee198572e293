package cache

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/internal/likeness"
	"github.com/intelliparadigm/haiku/internal/vectors"
)

// Semantic turns the vector tier on: an answer is also served to a question that
// means the same as the one it was given to. Two questions are compared only if
// everything else about their requests is equal: tenant, model, parameters and
// all of the conversation before.
type Semantic struct {
	// Embedder gives questions their vectors; nil is [Lexical].
	Embedder haiku.Embedder
	// Threshold is the least cosine similarity of a hit; 0 means 0.95.
	Threshold float64
	// Gate decides, of two questions that are similar enough, whether they ask for
	// the same: similarity alone takes opposites for each other. Nil is a gate that
	// wants the same numbers, negations, quotations, code, names, opposites and
	// words of content on both sides: strict, for a wrong answer costs more than a
	// miss.
	Gate func(asked, kept string) bool
	// MaxEntries bounds the questions that are kept, over all partitions; beyond
	// it the oldest go. 0 means 100,000.
	MaxEntries int
	// Approximate searches a partition by a graph (HNSW) in place of a scan: for
	// partitions of many thousand questions, at the price of a nearest one that is
	// overlooked now and then, which costs a miss.
	Approximate bool
}

// nearest is how many neighbours of a question are looked at.
const nearest = 8

// meanings is the vector tier.
type meanings struct {
	Semantic

	mu         sync.Mutex
	partitions map[Key]*partition
	order      []place // in which entries came, from head on
	head       int
	last       uint64 // id given
}

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

func newMeanings(o Semantic) *meanings {
	if o.Embedder == nil {
		o.Embedder = Lexical{}
	}
	if o.Threshold <= 0 {
		o.Threshold = 0.95
	}
	if o.MaxEntries <= 0 {
		o.MaxEntries = 100_000
	}
	return &meanings{Semantic: o, partitions: make(map[Key]*partition)}
}

// Meaning is a question as the vector tier knows it: its text, its vector, and
// the partition in which it may be compared.
type Meaning struct {
	Partition Key
	Text      string
	Vector    []float32
}

// Meaning returns the meaning of the question that req asks in a namespace, nil
// if the vector tier is off or there is no question to compare. An embedder that
// fails is told, and costs the request nothing else.
func (t *Tiers) Meaning(ctx context.Context, req *haiku.Request, namespace string) (*Meaning, error) {
	text := questionOf(req)
	if t.meanings == nil || text == "" {
		return nil, nil
	}
	out, err := t.meanings.Embedder.Embed(ctx, &haiku.EmbeddingRequest{Inputs: []haiku.EmbeddingInput{{Text: text}}})
	if err != nil {
		t.stats.unembedded.Add(1)
		return nil, fmt.Errorf("cache: embed a question: %w", err)
	}
	if len(out.Vectors) != 1 {
		t.stats.unembedded.Add(1)
		return nil, fmt.Errorf("cache: an embedder gave %d vectors for one question", len(out.Vectors))
	}
	return &Meaning{Partition: partitionOf(req, namespace), Text: text, Vector: out.Vectors[0]}, nil
}

// questionOf is what the last message asks, empty if that is not a user's.
func questionOf(req *haiku.Request) string {
	if n := len(req.Messages); n > 0 && req.Messages[n-1].Role == haiku.RoleUser {
		return req.Messages[n-1].Content
	}
	return ""
}

// Similar finds the answer to a question that means the same.
func (t *Tiers) Similar(m *Meaning) (*Answer, bool) {
	r, ok := t.similar(m)
	if !ok {
		return nil, false
	}
	return r.answer, true
}

func (t *Tiers) similar(m *Meaning) (*Record, bool) {
	if t.meanings == nil || m == nil {
		return nil, false
	}
	for {
		found, dead := t.meanings.near(m), 0
		for _, near := range found {
			if !t.usable(near.record) {
				near.record.hide() // for good, so that it stands before no other any more
				dead++
			}
		}
		if dead == 0 {
			return t.pass(m, found)
		}
	}
}

// pass returns the first of what was found that the gate lets pass.
func (t *Tiers) pass(m *Meaning, found []meant) (*Record, bool) {
	same := t.meanings.Gate
	var states likeness.Features
	if same == nil && len(found) > 0 {
		states = likeness.Of(m.Text)
	}
	for _, near := range found {
		var ok bool
		if same != nil {
			ok = same(m.Text, near.text)
		} else {
			ok, _ = likeness.Same(states, near.states)
		}
		if ok {
			return near.record, true
		}
		t.stats.gated.Add(1)
	}
	return nil, false
}

// near returns what is similar enough, the most similar first.
func (s *meanings) near(m *Meaning) []meant {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.partitions[m.Partition]
	if p == nil {
		return nil
	}
	var found []meant
	for _, match := range p.search(m.Vector) {
		if float64(match.Similarity) >= s.Threshold {
			found = append(found, p.kept[match.ID])
		}
	}
	return found
}

// search returns the nearest questions whose records are visible.
func (p *partition) search(query []float32) []vectors.Match {
	if p.index != nil {
		matches, err := p.index.Search(nil, query, nearest, func(id uint64) bool { return p.kept[id].record.state.Load() == visible })
		if err != nil {
			return nil
		}
		return matches
	}
	query = unitOf(query)
	var matches []vectors.Match
	for id, kept := range p.kept {
		if kept.record.state.Load() == visible && len(query) == len(kept.vector) && query != nil {
			matches = append(matches, vectors.Match{ID: id, Similarity: dot(query, kept.vector)})
		}
	}
	slices.SortFunc(matches, func(a, b vectors.Match) int {
		return cmp.Or(cmp.Compare(b.Similarity, a.Similarity), cmp.Compare(a.ID, b.ID))
	})
	return matches[:min(len(matches), nearest)]
}

// unitOf returns v at length one, nil if it has no direction.
func unitOf(v []float32) []float32 {
	squares := 0.0
	for _, x := range v {
		squares += float64(x) * float64(x)
	}
	if !(squares > 0) || math.IsInf(squares, 0) {
		return nil
	}
	unit, scale := make([]float32, len(v)), 1/math.Sqrt(squares)
	for i, x := range v {
		unit[i] = float32(float64(x) * scale)
	}
	return unit
}

func dot(a, b []float32) (sum float32) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// add enters a staged record, and reports whether it is in.
func (s *meanings) add(m *Meaning, r *Record) bool {
	kept := meant{record: r, vector: unitOf(m.Vector)}
	if s.Gate == nil {
		kept.states = likeness.Of(m.Text)
	} else {
		kept.text = m.Text
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.partitions[m.Partition]
	if p == nil {
		p = &partition{kept: make(map[uint64]meant)}
		s.partitions[m.Partition] = p
	}
	for len(s.order)-s.head >= s.MaxEntries {
		s.evict()
	}
	s.partitions[m.Partition] = p // if that was the last of it
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
	if m.vector == nil {
		return false
	}
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

// evict drops the oldest entry, from all tiers.
func (s *meanings) evict() {
	oldest := s.order[s.head]
	s.head++
	if s.head > len(s.order)/2 && s.head > 64 {
		s.order = append(s.order[:0], s.order[s.head:]...)
		s.head = 0
	}
	p := s.partitions[oldest.partition]
	p.kept[oldest.id].record.Hide()
	if p.index != nil {
		p.index.Remove(oldest.id)
	}
	delete(p.kept, oldest.id)
	s.tidy(oldest.partition, p)
}

func (s *meanings) tidy(key Key, p *partition) {
	if len(p.kept) == 0 {
		delete(s.partitions, key)
	}
}
