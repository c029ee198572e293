package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/intelliparadigm/haiku/internal/outage"
	"github.com/intelliparadigm/haiku/internal/redisclient"
)

// ErrOwed is matched by the error of Close when invalidations never reached
// the server: other processes still read what they should have removed.
var ErrOwed = errors.New("redis: invalidations were not delivered")

// writeAttempts bounds how often a write learns new versions and tries again.
const writeAttempts = 3

// Store is a level of a cache on a Redis server. Its methods may be called from
// any number of goroutines; it starts none of its own.
type Store struct {
	client   goredis.UniversalClient
	options  Options
	unusable bool

	prefix      string // of the keys of entries
	tagsKey     string
	read, write *goredis.Script

	versions versions
	guard    *outage.Guard
	count    counters
	closed   atomic.Bool
}

// New returns a Store on client, which stays the caller's. It does not wait for
// the server: one that is not there yet is a miss like one that is gone.
func New(client goredis.UniversalClient, options Options) *Store {
	o := options.withDefaults()
	s := &Store{
		client: client, options: o, unusable: !redisclient.HeedsDeadlines(client),
		prefix: o.hashTag() + "e:", tagsKey: o.hashTag() + "tags",
		read: goredis.NewScript(readScript), write: goredis.NewScript(writeScript),
		versions: versions{known: map[uint16]uint64{}, owed: map[uint16]uint64{}},
		guard:    newGuard(o),
	}
	if s.unusable {
		s.guard.Shut()
		o.Logger.Error("haiku: the shared cache stays off: its Redis client must be made with ContextTimeoutEnabled",
			slog.String("prefix", o.Prefix))
	}
	return s
}

// Get returns the values of keys, nil where there is none. All of them are of
// one write: where the keys hold parts of several, those of the highest epoch
// are returned, and among equal ones those of the write that is met first. A
// server that is down, slow or flushed is a miss. The values are the caller's.
func (s *Store) Get(ctx context.Context, keys ...string) [][]byte {
	values, ids := s.get(ctx, keys)
	s.oneWrite(values, ids)
	s.tally(values)
	return values
}

// GetEach returns the value of each key like Get, whichever writes they are of:
// for keys that have nothing to do with each other, at the price of one.
func (s *Store) GetEach(ctx context.Context, keys ...string) [][]byte {
	values, _ := s.get(ctx, keys)
	s.tally(values)
	return values
}

// get reads the values of keys, and the writes they are of where there are any.
func (s *Store) get(ctx context.Context, keys []string) (values [][]byte, ids []writeID) {
	values = make([][]byte, len(keys))
	if len(keys) == 0 {
		return values, ids
	}
	var records []any
	err := s.do(ctx, func(ctx context.Context) (err error) {
		records, err = s.read.Run(ctx, s.client, s.redisKeys(len(keys), func(i int) string { return keys[i] }),
			maxRecordBytes(s.options.MaxValueBytes)).Slice()
		return err
	})
	if err != nil || len(records) != len(keys) {
		return values, ids
	}
	ids = make([]writeID, len(keys))
	for i, record := range records {
		text, found := record.(string)
		if !found {
			continue
		}
		var ok bool
		if ids[i], values[i], ok = decode(keys[i], []byte(text)); !ok {
			s.count.corrupt.Add(1)
		}
	}
	return values, ids
}

// oneWrite leaves the values of one write: the newest.
func (s *Store) oneWrite(values [][]byte, ids []writeID) {
	best := -1
	for i := range values {
		if values[i] != nil && (best < 0 || ids[i].epoch > ids[best].epoch) {
			best = i
		}
	}
	for i := range values {
		if values[i] != nil && ids[i] != ids[best] {
			values[i] = nil
			s.count.mixed.Add(1)
		}
	}
}

func (s *Store) tally(values [][]byte) {
	hits := 0
	for _, value := range values {
		if value != nil {
			hits++
		}
	}
	s.count.hits.Add(uint64(hits))
	s.count.misses.Add(uint64(len(values) - hits))
}

// Mark returns the versions that tags have on the server now: whoever computes a
// value from here on gives them to its Entry, and if one of the tags is
// invalidated meanwhile, by whomever, the write is refused. Nil means that the
// server did not answer.
func (s *Store) Mark(ctx context.Context, tags ...string) []uint64 {
	if len(tags) == 0 {
		return nil
	}
	slots := distinct(tags)
	var reply string
	err := s.do(ctx, func(ctx context.Context) (err error) {
		w := write{store: s, keys: []string{s.tagsKey}}
		reply, err = s.write.Run(ctx, s.client, w.keys, w.arguments(slots, nil)...).Text() // version 0 never matches
		return err
	})
	if err != nil || len(reply) != 8*len(slots) {
		return nil
	}
	s.versions.learn(slots, reply)
	versions := make([]uint64, len(tags))
	for i, tag := range tags {
		at := 8 * findSlot(slots, slotOf(tag))
		versions[i] = binary.LittleEndian.Uint64([]byte(reply[at : at+8]))
	}
	return versions
}

// SetAll stores all entries or none. Readers prefer the higher epoch where two
// writes meet; a write replaces what its keys held whatever its epoch. True means
// that all are stored, false that none is, except after a timeout or a lost
// connection: then nobody knows which. The values are only read, and not after
// the call.
func (s *Store) SetAll(ctx context.Context, epoch uint64, entries []Entry) bool {
	if len(entries) == 0 {
		return true
	}
	if !s.inBounds(entries) {
		s.count.refused.Add(1)
		return false
	}
	stored := false
	err := s.do(ctx, func(ctx context.Context) (err error) {
		w := s.newWrite(epoch, entries)
		if w.marked != nil { // what has another version now was invalidated since
			stored, err = w.put(ctx, w.marked)
			return err
		}
		for attempt := 0; attempt < writeAttempts && err == nil && !stored; attempt++ {
			stored, err = w.put(ctx, s.versions.of(w.tags))
		}
		return err
	})
	switch {
	case stored:
		s.count.stored.Add(1)
	case err == nil:
		s.count.outrun.Add(1)
	}
	return stored
}

// Invalidate makes everything under the tags unreadable from now on, everywhere.
// False means that this has not reached the server yet: this Store then reads
// nothing until it has, and delivers it with whatever operation comes next.
func (s *Store) Invalidate(ctx context.Context, tags ...string) bool {
	if len(tags) == 0 {
		return true
	}
	slots := slotsOf(tags)
	err := s.do(ctx, func(ctx context.Context) error { return s.renew(ctx, slots) })
	if err != nil {
		s.versions.owe(slots)
	}
	return err == nil
}

// Close turns the Store off. It makes one attempt to deliver invalidations that
// are owed, and returns an error that is ErrOwed if it fails. Operations that
// run go on for as long as their deadline lets them. The client stays open.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	defer s.guard.Shut()
	if s.versions.debt() == nil {
		return nil
	}
	err := s.do(context.Background(), func(context.Context) error { return nil })
	if err != nil {
		return fmt.Errorf("%w: %w", ErrOwed, err)
	}
	return nil
}

// redisKeys returns the KEYS of a script: the versions, then those of n entries.
func (s *Store) redisKeys(n int, key func(i int) string) []string {
	keys := make([]string, n+1)
	keys[0] = s.tagsKey
	for i := range n {
		keys[i+1] = s.prefix + key(i)
	}
	return keys
}

// millis is a TTL as Redis takes it, at least 1.
func (s *Store) millis(ttl time.Duration) int64 {
	if ttl == 0 || ttl > s.options.MaxTTL {
		ttl = s.options.MaxTTL
	}
	return max(1, ttl.Milliseconds())
}
