package cache

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/internal/vectors"
)

// packed is an answer as it lies in the shared level.
type packed struct {
	Model   string         `json:"model"`
	Created time.Time      `json:"created"`
	Expires time.Time      `json:"expires"`
	Usage   haiku.Usage    `json:"usage"`
	Tokens  []packedToken  `json:"tokens"`
	Tags    []string       `json:"tags"`
	Meaning *packedMeaning `json:"meaning,omitempty"`
}

type packedToken struct {
	Choice int                `json:"c,omitempty"`
	Text   string             `json:"t,omitempty"`
	Finish haiku.FinishReason `json:"f,omitempty"`
	Delta  string             `json:"d,omitempty"`
}

// packedMeaning is the question of an answer. Its vector is float32, little-endian.
type packedMeaning struct {
	Partition []byte `json:"partition"`
	Text      string `json:"text"`
	Vector    []byte `json:"vector"`
}

// packedRoute is a route likewise.
type packedRoute struct {
	Route   *Route    `json:"route"`
	Expires time.Time `json:"expires"`
	Tags    []string  `json:"tags"`
}

func answerKey(key Key) string { return "answer:" + hex.EncodeToString(key[:]) }
func routeKey(key Key) string  { return "route:" + hex.EncodeToString(key[:]) }

// bucketKeys are where answers to questions near m are named. Of several in one
// bucket it holds the newest.
func bucketKeys(m *Meaning) []string {
	keys := make([]string, 0, vectors.Tables)
	for table, bucket := range vectors.Buckets(m.Vector) {
		keys = append(keys, fmt.Sprintf("near:%x:%d:%03x", m.Partition[:], table, bucket))
	}
	return keys
}

func packAnswer(w *Write, expires time.Time, tags []string) []byte {
	a := w.Answer
	p := packed{Model: a.Model, Created: a.Created, Expires: expires, Usage: a.Usage, Tags: tags}
	for _, tok := range a.Tokens {
		p.Tokens = append(p.Tokens, packedToken{tok.Choice, tok.Text, tok.Finish, tok.Delta})
	}
	if m := w.Meaning; m != nil {
		p.Meaning = &packedMeaning{Partition: m.Partition[:], Text: m.Text}
		for _, x := range m.Vector {
			p.Meaning.Vector = binary.LittleEndian.AppendUint32(p.Meaning.Vector, math.Float32bits(x))
		}
	}
	data, _ := json.Marshal(p) // what cannot be written is nothing, which is a miss to whoever reads it
	return data
}

func packRoute(r *Route, expires time.Time, tags []string) []byte {
	data, _ := json.Marshal(packedRoute{r, expires, tags})
	return data
}

// unpackAnswer reads an answer, nil if there is none that may be used.
func unpackAnswer(data []byte) *packed {
	var p packed
	if data == nil || json.Unmarshal(data, &p) != nil || !time.Now().Before(p.Expires) {
		return nil
	}
	return &p
}

func unpackRoute(data []byte) *packedRoute {
	var p packedRoute
	if data == nil || json.Unmarshal(data, &p) != nil || p.Route == nil || !time.Now().Before(p.Expires) {
		return nil
	}
	return &p
}

func (p *packed) answer() *Answer {
	a := &Answer{Model: p.Model, Created: p.Created, Usage: p.Usage}
	for _, tok := range p.Tokens {
		a.Tokens = append(a.Tokens, haiku.Token{Choice: tok.Choice, ID: haiku.NoToken, Text: tok.Text, Delta: tok.Delta, Finish: tok.Finish})
	}
	return a
}

// meaning is nil for none and for what is none.
func (p *packedMeaning) meaning() *Meaning {
	if p == nil || len(p.Partition) != len(Key{}) || len(p.Vector)%4 != 0 {
		return nil
	}
	m := &Meaning{Partition: Key(p.Partition), Text: p.Text, Vector: make([]float32, len(p.Vector)/4)}
	for i := range m.Vector {
		m.Vector[i] = math.Float32frombits(binary.LittleEndian.Uint32(p.Vector[4*i:]))
	}
	return m
}
