package cache

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/intelliparadigm/haiku"
)

// Shared is a level of the cache that several processes share, such as
// cache/redis. It keeps these rules:
//
//   - Its methods may be called concurrently, and return within a time of the
//     store's own, whatever the context allows. Nothing that goes wrong with it is
//     an error to its caller: it is a miss.
//   - What was invalidated is not read any more, in no process.
type Shared interface {
	// Get returns the values of keys that were written together, nil where there
	// is none: never parts of two writes.
	Get(ctx context.Context, keys ...string) [][]byte
	// GetEach returns the value of each key, whichever write it is of.
	GetEach(ctx context.Context, keys ...string) [][]byte
	// Mark returns the present version of each tag, for entries that are computed
	// from now on; nil if it cannot be told.
	Mark(ctx context.Context, tags ...string) []uint64
	// SetAll stores all entries or none, and reports which. It stores none if a tag
	// has another version than its entry says. Of two writes the one with the
	// higher epoch is the newer.
	SetAll(ctx context.Context, epoch uint64, entries []Entry) bool
	// Invalidate makes everything under the tags unreadable. It reports whether
	// that has happened; if not, the store makes up for it.
	Invalidate(ctx context.Context, tags ...string) bool
	Close() error
}

// Entry is one value of a write to a [Shared] level.
type Entry struct {
	Key   string
	Value []byte
	TTL   time.Duration // 0 is for as long as the store keeps it
	Tags  []string
	// Versions are those of Tags when the value began to be computed, as Mark gave
	// them; nil stands for those at the time of the write.
	Versions []uint64
}

// defaultLocalTTL is how old what this process holds may become until the shared
// level is asked again.
const defaultLocalTTL = 30 * time.Second

// packed is an answer as it lies in the shared level.
type packed struct {
	Model   string        `json:"model"`
	Created time.Time     `json:"created"`
	Expires time.Time     `json:"expires"`
	Usage   haiku.Usage   `json:"usage"`
	Tokens  []packedToken `json:"tokens"`
	Tags    []string      `json:"tags"`
}

type packedToken struct {
	Choice int                `json:"c,omitempty"`
	Text   string             `json:"t,omitempty"`
	Finish haiku.FinishReason `json:"f,omitempty"`
}

// packedRoute is a route likewise.
type packedRoute struct {
	Route   *Route    `json:"route"`
	Expires time.Time `json:"expires"`
	Tags    []string  `json:"tags"`
}

func answerKey(key Key) string { return "answer:" + hex.EncodeToString(key[:]) }
func routeKey(key Key) string  { return "route:" + hex.EncodeToString(key[:]) }

// share writes an entry to the shared level, whole or not at all.
func (t *Tiers) share(ctx context.Context, w Write, ttl time.Duration) {
	if t.opts.Shared == nil {
		return
	}
	tags := w.Mark.names()
	if len(tags) > 0 && w.Mark.versions == nil { // nobody knows what was invalidated meanwhile
		t.stats.unshared.Add(1)
		return
	}
	var entries []Entry
	add := func(key string, v any) bool {
		data, err := json.Marshal(v)
		entries = append(entries, Entry{Key: key, Value: data, TTL: ttl, Tags: tags, Versions: w.Mark.versions})
		return err == nil
	}
	ok := true
	if a := w.Answer; a != nil {
		p := packed{Model: a.Model, Created: a.Created, Expires: time.Now().Add(ttl), Usage: a.Usage, Tags: tags}
		for _, tok := range a.Tokens {
			p.Tokens = append(p.Tokens, packedToken{tok.Choice, tok.Text, tok.Finish})
		}
		ok = add(answerKey(w.Key), p)
	}
	if w.Route != nil && w.Prompt != (Key{}) {
		ok = add(routeKey(w.Prompt), packedRoute{w.Route, time.Now().Add(ttl), tags}) && ok
	}
	if !ok || !t.opts.Shared.SetAll(ctx, uint64(time.Now().UnixNano()), entries) {
		t.stats.unshared.Add(1)
	}
}

// fetch looks for an answer in the shared level, and keeps what it finds here
// too.
func (t *Tiers) fetch(ctx context.Context, key Key) (*Record, bool) {
	if t.opts.Shared == nil {
		return nil, false
	}
	data := t.opts.Shared.Get(ctx, answerKey(key))[0]
	var p packed
	if data == nil || json.Unmarshal(data, &p) != nil || !time.Now().Before(p.Expires) {
		return nil, false
	}
	a := &Answer{Model: p.Model, Created: p.Created, Usage: p.Usage}
	for _, tok := range p.Tokens {
		a.Tokens = append(a.Tokens, haiku.Token{Choice: tok.Choice, ID: haiku.NoToken, Text: tok.Text, Finish: tok.Finish})
	}
	r := t.fetched(p.Expires, p.Tags)
	r.key, r.answer = key, a
	t.outputs.Set(key, r, r.Bytes(), time.Until(r.expires)) // if it is not taken, the next one asks again
	return r, true
}

// fetchRoute looks for a route in the shared level likewise.
func (t *Tiers) fetchRoute(ctx context.Context, prompt Key) (*Route, bool) {
	if t.opts.Shared == nil {
		return nil, false
	}
	data := t.opts.Shared.Get(ctx, routeKey(prompt))[0]
	var p packedRoute
	if data == nil || json.Unmarshal(data, &p) != nil || p.Route == nil || !time.Now().Before(p.Expires) {
		return nil, false
	}
	r := t.fetched(p.Expires, p.Tags)
	r.route = p.Route
	t.setRoute(prompt, r)
	return r.route, true
}

// fetched is a record of what another process has written, visible from the
// beginning, and held here for LocalTTL at most.
func (t *Tiers) fetched(ends time.Time, tags []string) *Record {
	ttl := min(time.Until(ends), t.opts.LocalTTL)
	r := &Record{epoch: t.epoch.Add(1), expires: time.Now().Add(ttl), ends: ends, tags: t.mark(tags), evicted: &t.stats.evicted}
	r.state.Store(visible)
	return r
}

// names are the tags of a mark.
func (m Mark) names() []string {
	names := make([]string, len(m.tags))
	for i, tag := range m.tags {
		names[i] = tag.name
	}
	return names
}
