package cache

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"github.com/intelliparadigm/haiku"
)

// Key names what an answer depends on. Two requests with the same Key may have
// the same answer.
type Key [sha256.Size]byte

// KeyOf returns the key of a request in a namespace: a hash of the tenant and of
// everything that shapes the answer. What only names the request, says how
// urgent it is or how the answer is written out is no part of it.
func KeyOf(req *haiku.Request, namespace string) Key {
	var d digest
	d.text("haiku answer 2")
	d.partition(req, namespace)
	d.count(len(req.Messages))
	for i := range req.Messages {
		d.message(&req.Messages[i])
	}
	d.continued(req)
	return d.sum()
}

// continued writes a prompt that is no conversation.
func (d *digest) continued(req *haiku.Request) {
	d.text(req.Prompt)
	d.count(len(req.PromptTokens))
	for _, id := range req.PromptTokens {
		d.number(uint64(uint32(id)))
	}
}

// partitionOf is the key of everything but the question, which is the text of the
// last message: what two questions must have in common before their meanings are
// compared. It holds the name of the model that gave the question its vector, and
// the vector's length, too: the vectors of two models have nothing to do with each
// other.
func partitionOf(req *haiku.Request, namespace, embedder string, dimensions int) Key {
	var d digest
	d.text("haiku partition 2")
	d.text(embedder)
	d.count(dimensions)
	d.partition(req, namespace)
	last := len(req.Messages) - 1
	d.count(last)
	for i := range req.Messages {
		m := req.Messages[i]
		if i == last {
			m.Content = ""
		}
		d.message(&m)
	}
	d.continued(req)
	return d.sum()
}

// digest is values written so that no two sequences of them are the same bytes.
// It lies on the stack, and so do the bytes of prompts of usual length.
type digest struct {
	room [1 << 10]byte
	used int
	long []byte // all of it, once room is too small
}

// extend returns where the next n bytes go.
func (d *digest) extend(n int) []byte {
	if d.used+n <= len(d.room) && d.long == nil {
		d.used += n
		return d.room[d.used-n : d.used]
	}
	if d.long == nil {
		d.long = append(make([]byte, 0, 2*(d.used+n)), d.room[:d.used]...)
	}
	d.long = slices.Grow(d.long, n)[:len(d.long)+n]
	return d.long[len(d.long)-n:]
}

func (d *digest) sum() Key {
	if d.long != nil {
		return sha256.Sum256(d.long)
	}
	return sha256.Sum256(d.room[:d.used])
}

func (d *digest) number(n uint64) { binary.LittleEndian.PutUint64(d.extend(8), n) }
func (d *digest) count(n int)     { d.number(uint64(n)) }
func (d *digest) float(x float64) { d.number(math.Float64bits(x)) }

func (d *digest) text(s string) {
	d.count(len(s))
	copy(d.extend(len(s)), s)
}

func (d *digest) flag(b bool) {
	if b {
		d.number(1)
	} else {
		d.number(0)
	}
}

func (d *digest) message(m *haiku.Message) {
	d.text(string(m.Role))
	d.text(m.Name)
	d.text(m.Content)
	d.extensions(m.Extensions)
}

// extensions writes members in the order of their names, which is the same
// object in whatever order they came. Their values are told apart by every byte:
// the order inside a tool's schema may shape what a model makes of it.
func (d *digest) extensions(list []haiku.Extension) {
	d.count(len(list))
	byName := func(a, b haiku.Extension) int { return cmp.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(list, byName) {
		list = slices.Clone(list)
		slices.SortStableFunc(list, byName)
	}
	for i := range list {
		d.text(list[i].Name)
		d.flag(list[i].Optional) // which a model may leave out
		d.count(len(list[i].Value))
		copy(d.extend(len(list[i].Value)), list[i].Value)
	}
}

// partition writes everything that shapes an answer beside the prompt.
func (d *digest) partition(req *haiku.Request, namespace string) {
	d.text(req.Tenant)
	d.text(namespace)
	d.text(req.Model)
	d.flag(req.AdapterScale != nil)
	if req.AdapterScale != nil {
		d.float(*req.AdapterScale)
	}
	d.count(max(req.Choices, 1))
	d.count(req.MaxTokens)
	d.count(len(req.Stop))
	for _, s := range req.Stop {
		d.text(s)
	}
	d.flag(req.Logprobs)
	d.count(req.TopLogprobs)
	d.sampling(&req.Sampling)
	d.extensions(req.Extensions)
}

func (d *digest) sampling(s *haiku.Sampling) {
	for _, x := range [...]float64{s.Temperature, s.TopP, s.MinP, s.TypicalP, s.PresencePenalty, s.FrequencyPenalty, s.RepetitionPenalty} {
		d.float(x)
	}
	d.count(s.TopK)
	d.flag(s.Seed != nil)
	if s.Seed != nil {
		d.number(*s.Seed)
	}
	d.count(len(s.LogitBias))
	for _, id := range sortedIDs(s.LogitBias) {
		d.number(uint64(uint32(id)))
		d.float(float64(s.LogitBias[id]))
	}
	d.flag(s.Mask != nil)
	d.count(len(s.Mask))
	for _, bits := range s.Mask {
		d.number(bits)
	}
}

// sortedIDs allocates nothing for the usual empty map.
func sortedIDs(bias map[int32]float32) []int32 {
	if len(bias) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(bias))
}
