package etcd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/intelliparadigm/haiku/fallback"
)

var (
	errStopped = errors.New("the caller has seen enough")
	errEnded   = errors.New("the client has been closed")
	errBehind  = errors.New("the watch does not hear of what there is")
)

// maxMistakes bounds how far a watch looks back for a setting.
const maxMistakes = 8

// Watch yields the setting of name, then each change as it comes. Of changes in
// quick succession none is left out unless etcd has compacted it away. It ends
// with ctx, or with an error when etcd cannot be reached; who watches again reads
// the present setting first.
func (s *Switch) Watch(ctx context.Context, name string) iter.Seq2[fallback.Setting, error] {
	return func(yield func(fallback.Setting, error) bool) {
		w := &watch{Switch: s, key: s.settingKey(name), yield: yield}
		err := w.run(ctx)
		if err != errStopped && ctx.Err() == nil {
			yield(fallback.Setting{}, fmt.Errorf("etcd: watching %q: %w", name, err))
		}
	}
}

// watch is one iteration over Watch, in its caller's goroutine.
type watch struct {
	*Switch
	key   string
	yield func(fallback.Setting, error) bool

	last    fallback.Setting // what was yielded, of Revision 0 if there is none
	yielded bool
	// suspects is since when the watch has not known what there is, and has heard
	// nothing; zero if it does.
	suspects time.Time
}

// run reads and follows, and reads again when changes were compacted away.
func (w *watch) run(ctx context.Context) error {
	for {
		next, err := w.read(ctx)
		if err != nil {
			return err
		}
		if err = w.follow(ctx, next); !errors.Is(err, rpctypes.ErrCompacted) {
			return err
		}
	}
}

// read yields the present setting unless it was yielded before, and returns the
// revision after that of the reading.
func (w *watch) read(ctx context.Context) (next int64, err error) {
	bounded, cancel := w.bounded(ctx)
	defer cancel()
	got, err := w.client.Get(bounded, w.key)
	if err != nil {
		return 0, err
	}
	if !w.yielded || !w.knows(got) {
		err = w.show(ctx, valueOf(got))
	}
	return got.Header.Revision + 1, err
}

// value is what is under the key: of revision 0 if nothing is.
type value struct {
	text     []byte
	revision int64
}

func valueOf(got *clientv3.GetResponse) value {
	if len(got.Kvs) == 0 {
		return value{}
	}
	return value{got.Kvs[0].Value, got.Kvs[0].ModRevision}
}

func (w *watch) knows(got *clientv3.GetResponse) bool {
	return valueOf(got).revision == w.last.Revision
}

// follow yields changes from a revision on.
func (w *watch) follow(ctx context.Context, from int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	// Watch itself waits for the server, for as long as its context lasts.
	impatience := time.AfterFunc(w.options.Deadline, cancel)
	changes := w.client.Watch(ctx, w.key, clientv3.WithRev(from))
	if !impatience.Stop() {
		return context.DeadlineExceeded
	}
	beat := time.NewTicker(w.options.Beat)
	defer beat.Stop()
	for {
		var err error
		select {
		case change, ok := <-changes:
			if !ok {
				return errEnded
			}
			err = w.take(ctx, change)
		case <-beat.C:
			err = w.check(ctx)
		}
		if err != nil {
			return err
		}
	}
}

func (w *watch) take(ctx context.Context, change clientv3.WatchResponse) error {
	if err := change.Err(); err != nil {
		return err
	}
	for _, event := range change.Events {
		v := value{event.Kv.Value, event.Kv.ModRevision}
		if event.Type == clientv3.EventTypeDelete {
			v = value{}
		}
		w.suspects = time.Time{}
		if err := w.show(ctx, v); err != nil {
			return err
		}
	}
	return nil
}

// check asks the server for the key. A change that is there may be on its way:
// etcd itself takes a tenth of a second where a watcher has to catch up.
func (w *watch) check(ctx context.Context) error {
	bounded, cancel := w.bounded(ctx)
	defer cancel()
	got, err := w.client.Get(bounded, w.key)
	switch {
	case err != nil:
		return err
	case w.knows(got):
		w.suspects = time.Time{}
	case w.suspects.IsZero():
		w.suspects = time.Now()
	case time.Since(w.suspects) > w.options.Deadline:
		return errBehind
	}
	return nil
}

// show yields what a value says.
func (w *watch) show(ctx context.Context, v value) error {
	set, err := w.understand(ctx, v)
	if err != nil {
		return err
	}
	w.last, w.yielded = set, true
	if !w.yield(set, nil) {
		return errStopped
	}
	return nil
}

// understand returns the setting that a value is. If it is none it returns the
// one before, as etcd remembers it, with the value's revision: so all replicas
// understand the same, whenever they began to watch.
func (w *watch) understand(ctx context.Context, v value) (set fallback.Setting, err error) {
	revision := v.revision
	for range maxMistakes {
		if v.revision == 0 {
			break
		}
		read, lease, mistake := decode(v.text)
		if mistake == nil {
			set = read
			set.Remaining, err = w.remaining(ctx, read.Wait, lease)
			break
		}
		w.options.Logger.Error("haiku: no setting of a breaker; keeping the one before",
			slog.String("key", w.key), slog.Int64("revision", v.revision), slog.Any("error", mistake))
		if v, err = w.before(ctx, v.revision); err != nil {
			break
		}
	}
	set.Revision = revision
	return set, err
}

// before returns what was under the key before a revision, or nothing if etcd has
// forgotten it.
func (w *watch) before(ctx context.Context, revision int64) (value, error) {
	bounded, cancel := w.bounded(ctx)
	defer cancel()
	got, err := w.client.Get(bounded, w.key, clientv3.WithRev(revision-1))
	if errors.Is(err, rpctypes.ErrCompacted) {
		return value{}, nil
	}
	if err != nil {
		return value{}, err
	}
	return valueOf(got), nil
}

// remaining returns what is left of a wait.
func (w *watch) remaining(ctx context.Context, wait time.Duration, lease clientv3.LeaseID) (time.Duration, error) {
	if wait <= 0 || lease == 0 {
		return wait, nil
	}
	bounded, cancel := w.bounded(ctx)
	defer cancel()
	l, err := w.client.TimeToLive(bounded, lease)
	if err != nil {
		return 0, err
	}
	return left(wait, l.GrantedTTL, l.TTL), nil
}
