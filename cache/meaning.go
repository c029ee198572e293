package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/internal/vectors"
)

// Semantic turns the vector tier on: an answer is also served to a question that
// means the same as the one it was given to. Two questions are compared only if
// everything else about their requests is equal: tenant, model, parameters and
// all of the conversation before.
type Semantic struct {
	// Embedder gives questions their vectors.
	Embedder haiku.Embedder
	// Threshold is the least cosine similarity of a hit; 0 means 0.95.
	Threshold float64
	// Gate decides, of two questions that are similar enough, whether they ask for
	// the same: similarity alone takes opposites for each other. Nil passes none.
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

// partition holds the questions that may be compared with each other.
type partition struct {
	index vectors.Index
	kept  map[uint64]meant
}

// meant is a question and the record of its answer.
type meant struct {
	record *Record
	text   string
}

type place struct {
	partition Key
	id        uint64
}

func newMeanings(o Semantic) (*meanings, error) {
	if o.Embedder == nil {
		return nil, errors.New("cache: Semantic needs an Embedder")
	}
	if o.Threshold <= 0 {
		o.Threshold = 0.95
	}
	if o.MaxEntries <= 0 {
		o.MaxEntries = 100_000
	}
	return &meanings{Semantic: o, partitions: make(map[Key]*partition)}, nil
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
	for _, near := range t.meanings.near(m) {
		if !t.usable(near.record) {
			continue
		}
		if t.meanings.Gate == nil || !t.meanings.Gate(m.Text, near.text) {
			t.stats.gated.Add(1)
			continue
		}
		return near.record, true
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
	matches, err := p.index.Search(nil, m.Vector, nearest, func(id uint64) bool { return p.kept[id].record.state.Load() == visible })
	if err != nil {
		return nil
	}
	var found []meant
	for _, match := range matches {
		if float64(match.Similarity) >= s.Threshold {
			found = append(found, p.kept[match.ID])
		}
	}
	return found
}

// add enters a staged record, and reports whether it is in.
func (s *meanings) add(m *Meaning, r *Record) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.partitions[m.Partition]
	if p == nil {
		index, err := s.newIndex(len(m.Vector))
		if err != nil {
			return false
		}
		p = &partition{index: index, kept: make(map[uint64]meant)}
		s.partitions[m.Partition] = p
	}
	for len(s.order)-s.head >= s.MaxEntries {
		s.evict()
	}
	s.last++
	if err := p.index.Add(s.last, m.Vector); err != nil {
		s.tidy(m.Partition, p)
		return false
	}
	p.kept[s.last] = meant{r, m.Text}
	s.order = append(s.order, place{m.Partition, s.last})
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
	p.index.Remove(oldest.id)
	delete(p.kept, oldest.id)
	s.tidy(oldest.partition, p)
}

func (s *meanings) tidy(key Key, p *partition) {
	if len(p.kept) == 0 {
		delete(s.partitions, key)
	}
}
