package redis

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// do runs one operation under the Store's deadline, if the breaker lets it, and
// tells the breaker how it went. What is owed goes first.
func (s *Store) do(ctx context.Context, operation func(context.Context) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err // the caller has left
	}
	p, ok := permit{}, false
	if !s.unusable && !s.closed.Load() {
		p, ok = s.breaker.allow(time.Now())
	}
	if !ok {
		s.count.skipped.Add(1)
		return errOff
	}
	v := void // stays so if the client panics: a probe must not be lost
	defer func() { s.judged(p, v, err) }()
	bounded, cancel := context.WithTimeout(ctx, s.options.Deadline)
	defer cancel()
	if err = s.deliver(bounded); err == nil {
		err = operation(bounded)
	}
	v = s.judge(ctx, err)
	return err
}

// judge counts a failure and says what it means for the breaker.
func (s *Store) judge(caller context.Context, err error) verdict {
	var timeout net.Error
	switch {
	case err == nil:
		return good
	case hasLeft(caller):
		return void // not the server's fault
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		s.count.timeouts.Add(1)
		return bad
	}
	s.count.errors.Add(1)
	if refusesWrites(err) {
		return good
	}
	return bad
}

// hasLeft reports whether the caller waits no longer. A socket may notice a
// deadline a moment before the context does.
func hasLeft(caller context.Context) bool {
	deadline, bounded := caller.Deadline()
	return caller.Err() != nil || bounded && !time.Now().Before(deadline)
}

// refusesWrites reports whether the server is well and merely takes no writes:
// it is full, a replica, or cannot save. Reading goes on.
func refusesWrites(err error) bool {
	return goredis.IsOOMError(err) || goredis.IsReadOnlyError(err) || goredis.IsNoReplicasError(err) ||
		goredis.HasErrorPrefix(err, "MISCONF")
}

// judged gives the permit back, and logs when the server goes or comes.
func (s *Store) judged(p permit, v verdict, err error) {
	change, down := s.breaker.done(time.Now(), p, v)
	switch change {
	case wentDown:
		s.count.opened.Add(1)
		s.options.Logger.Warn("haiku: the shared cache does not answer; going on without it",
			slog.String("prefix", s.options.Prefix), slog.Any("error", err))
	case wentUp:
		s.options.Logger.Info("haiku: the shared cache is back",
			slog.String("prefix", s.options.Prefix), slog.Duration("after", down))
	}
}

// deliver makes up for invalidations that failed.
func (s *Store) deliver(ctx context.Context) error {
	debt := s.versions.debt()
	if debt == nil {
		return nil
	}
	if err := s.renew(ctx, slices.Collect(maps.Keys(debt))); err != nil {
		return err
	}
	s.versions.settle(debt)
	return nil
}

// renew gives slots a new version.
func (s *Store) renew(ctx context.Context, slots []uint16) error {
	version := newVersion()
	bytes := tagVersion{version: version}.versionBytes()
	args := make([]any, 0, 2*len(slots))
	for _, slot := range slots {
		args = append(args, tagVersion{slot: slot}.slotBytes(), bytes)
	}
	if err := s.client.HSet(ctx, s.tagsKey, args...).Err(); err != nil {
		return err
	}
	s.versions.renewed(slots, version)
	return nil
}
