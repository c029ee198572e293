package redis

import (
	"context"
	"slices"
)

// write is one SetAll.
type write struct {
	store   *Store
	id      writeID
	entries []Entry
	keys    []string
	tags    []string     // of all entries
	marked  []tagVersion // the versions that entries name, nil if they leave them open
}

func (s *Store) inBounds(entries []Entry) bool {
	marked := slices.ContainsFunc(entries, func(e Entry) bool { return len(e.Versions) > 0 })
	return !slices.ContainsFunc(entries, func(e Entry) bool {
		return len(e.Value) > s.options.MaxValueBytes || len(e.Tags) > maxTags || e.TTL < 0 ||
			marked && len(e.Versions) != len(e.Tags)
	})
}

func (s *Store) newWrite(epoch uint64, entries []Entry) *write {
	w := &write{store: s, id: writeID{epoch, newVersion()}, entries: entries}
	for i := range entries {
		w.tags = append(w.tags, entries[i].Tags...)
		w.mark(&entries[i])
	}
	w.keys = s.redisKeys(len(entries), func(i int) string { return entries[i].Key })
	return w
}

// mark notes the versions that an entry names. One write has one version of a
// tag: where entries name several, it is refused as outdated.
func (w *write) mark(e *Entry) {
	for i, tag := range e.Tags {
		if i >= len(e.Versions) {
			return
		}
		named := tagVersion{slotOf(tag), e.Versions[i]}
		switch at := findSlot(w.marked, named.slot); {
		case at < 0:
			w.marked = append(w.marked, named)
		case w.marked[at].version != named.version:
			w.marked[at].version = 0
		}
	}
}

// put stores the entries if tags have the expected versions, else it learns those
// that they have.
func (w *write) put(ctx context.Context, expected []tagVersion) (stored bool, err error) {
	s := w.store
	keys, entries := w.keys, w.entries
	learning := slices.ContainsFunc(expected, func(t tagVersion) bool { return t.version == 0 })
	if learning {
		keys, entries = keys[:1], nil // it cannot match: ask without sending the values
	}
	reply, err := s.write.Run(ctx, s.client, keys, w.arguments(expected, entries)...).Text()
	if err != nil || reply == "" {
		return err == nil && !learning, err
	}
	s.versions.learn(expected, reply)
	return false, nil
}

// arguments lays the write out as writeScript wants it. All heads share one
// buffer; the values are not copied.
func (w *write) arguments(expected []tagVersion, entries []Entry) []any {
	length := tagBytes * len(expected)
	for i := range entries {
		length += fixedBytes + tagBytes*len(entries[i].Tags)
	}
	buffer := make([]byte, 0, length)
	for _, t := range expected {
		buffer = t.appendTo(buffer)
	}
	args := append(make([]any, 0, 2+3*len(entries)), tagVersion{version: newVersion()}.versionBytes(), buffer)
	var own []tagVersion
	for i := range entries {
		e := &entries[i]
		own = own[:0]
		for _, tag := range e.Tags {
			own = append(own, expected[findSlot(expected, slotOf(tag))])
		}
		begin := len(buffer)
		buffer = appendHead(buffer, w.id, e.Key, own, e.Value)
		args = append(args, w.store.millis(e.TTL), buffer[begin:], e.Value)
	}
	return args
}

func findSlot(tags []tagVersion, slot uint16) int {
	return slices.IndexFunc(tags, func(t tagVersion) bool { return t.slot == slot })
}
