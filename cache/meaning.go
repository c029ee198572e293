package cache

import (
	"context"
	"fmt"
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
	// Threshold is the least cosine similarity of a hit; 0 means 0.95, or 0.5 with a
	// Budget, to which it leaves the rest.
	Threshold float64
	// Gate decides, of two questions that are similar enough, whether they ask for
	// the same: similarity alone takes opposites for each other. Nil is a gate that
	// wants the same numbers, negations, quotations, code, names, opposites and
	// words of content on both sides: strict, for a wrong answer costs more than a
	// miss. With a Budget it leaves the words of content to that.
	Gate func(asked, kept string) bool
	// Budget, if it is not nil, learns for each kept answer how near a question has
	// to be, in place of one threshold for all: see [Budget].
	Budget *Budget
	// Shadow is the share of hits that are computed all the same, whose answers are
	// compared with the kept ones: it tells how often the tier is wrong
	// ([Stats].Verified and Wrong). Who asked gets the one that was computed. 0 is
	// none, or 1/64 with a Budget, which learns from it; negative is none.
	Shadow float64
	// SameAnswer judges whether two answers say the same, for Shadow and Budget. Nil
	// is strict: the same numbers, negations, names and words of content, in
	// whatever wording between them. It fits short answers; longer ones want a judge
	// of the host's own.
	SameAnswer func(kept, computed *Answer) bool
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
	swept      uint64 // the id that was the last when the dead were taken out
	budget     *likeness.Budget
}

func newMeanings(o Semantic) *meanings {
	if o.Embedder == nil {
		o.Embedder = Lexical{}
	}
	if o.Threshold <= 0 {
		o.Threshold = 0.95
		if o.Budget != nil {
			o.Threshold = 0.5
		}
	}
	if o.MaxEntries <= 0 {
		o.MaxEntries = 100_000
	}
	s := &meanings{Semantic: o, partitions: make(map[Key]*partition)}
	if o.Budget != nil {
		s.budget = o.Budget.new(o.Shadow)
	}
	return s
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
	v := out.Vectors[0]
	if _, err := vectors.Unit(v); err != nil {
		t.stats.unembedded.Add(1)
		return nil, fmt.Errorf("cache: embed a question: %w", err)
	}
	return &Meaning{Partition: partitionOf(req, namespace, out.Model, len(v)), Text: text, Vector: v}, nil
}

// questionOf is what the last message asks, empty if that is not a user's.
func questionOf(req *haiku.Request) string {
	if n := len(req.Messages); n > 0 && req.Messages[n-1].Role == haiku.RoleUser {
		return req.Messages[n-1].Content
	}
	return ""
}

// Similar finds the answer to a question that means the same. One that has to be
// verified first (see [Semantic].Shadow) is a miss here.
func (t *Tiers) Similar(ctx context.Context, m *Meaning) (*Answer, bool) {
	h, _ := t.similar(ctx, m)
	return h.Answer, h.Answer != nil
}

// similar finds the answer to a question that means the same, or else one that is
// to be verified.
func (t *Tiers) similar(ctx context.Context, m *Meaning) (hit, *doubt) {
	if t.meanings == nil || m == nil {
		return hit{}, nil
	}
	h, d := t.pass(m, t.meanings.near(m, t.usable))
	if h.Answer == nil && d == nil && t.fetchNear(ctx, m) {
		h, d = t.pass(m, t.meanings.near(m, t.usable))
	}
	return h, d
}

// pass returns the first of what was found that the gate lets pass, to be served
// or to be verified.
func (t *Tiers) pass(m *Meaning, found []nearby) (hit, *doubt) {
	if len(found) == 0 {
		return hit{}, nil
	}
	gate := t.meanings.gate(m.Text)
	for i := range found {
		near := &found[i]
		if !gate(&near.meant) {
			t.stats.gated.Add(1)
			continue
		}
		h, ok := t.take(near.record)
		if !ok { // gone since it was found
			continue
		}
		if t.meanings.doubts(near) {
			return hit{}, &doubt{h.Answer, near.record.key, near.record.trust, near.similarity}
		}
		h.text = near.text
		return h, nil
	}
	return hit{}, nil
}

// gate returns what decides whether a kept question asks for the same as text.
func (s *meanings) gate(text string) func(*meant) bool {
	if s.Gate != nil {
		return func(kept *meant) bool { return s.Gate(text, kept.text) }
	}
	states, same := likeness.Of(text), likeness.Same
	if s.budget != nil {
		same = likeness.SameFacts
	}
	return func(kept *meant) bool {
		ok, _ := same(states, kept.states)
		return ok
	}
}

// close reports whether two questions are similar enough for a hit.
func (s *meanings) close(a, b *Meaning) bool {
	x, errX := vectors.Unit(a.Vector)
	y, errY := vectors.Unit(b.Vector)
	if errX != nil || errY != nil || len(x) != len(y) {
		return false
	}
	var similarity [1]float32
	vectors.Dots(similarity[:], [][]float32{x}, y)
	return float64(similarity[0]) >= s.Threshold
}

// nearby is a question that was found near another.
type nearby struct {
	meant
	id         uint64
	similarity float64
}

// near returns what is usable and similar enough, the most similar first.
func (s *meanings) near(m *Meaning, usable func(*Record) bool) []nearby {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.partitions[m.Partition]
	if p == nil {
		return nil
	}
	var found []nearby
	for _, match := range p.search(m.Vector, usable) {
		if float64(match.Similarity) >= s.Threshold {
			found = append(found, nearby{p.kept[match.ID], match.ID, float64(match.Similarity)})
		}
	}
	return found
}
