package redis

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/intelliparadigm/haiku/internal/outage"
	"github.com/intelliparadigm/haiku/internal/redisclient"
)

func newGuard(o Options) *outage.Guard {
	prefix := slog.String("prefix", o.Prefix)
	return outage.New(outage.Options{
		Deadline: o.Deadline, Failures: o.Failures, Pause: o.Pause, MaxPause: o.MaxPause,
		Well: redisclient.RefusesWrites,
		Down: func(err error) {
			o.Logger.Warn("haiku: the shared cache does not answer; going on without it", prefix, slog.Any("error", err))
		},
		Up: func(after time.Duration) {
			o.Logger.Info("haiku: the shared cache is back", prefix, slog.Duration("after", after))
		},
	})
}

// do runs one operation under the guard. What is owed goes first.
func (s *Store) do(ctx context.Context, operation func(context.Context) error) error {
	return s.guard.Do(ctx, func(ctx context.Context) error {
		if err := s.deliver(ctx); err != nil {
			return err
		}
		return operation(ctx)
	})
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
