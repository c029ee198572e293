package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/intelliparadigm/haiku/fallback"
)

// ErrInvalid is matched by the error of Set for a setting that cannot be
// written, and of Probe for a TTL that is none.
var ErrInvalid = errors.New("etcd: invalid setting")

var _ fallback.Switch = (*Switch)(nil)

// Switch is a fallback.Switch in etcd. Its methods may be called from any number
// of goroutines. It starts none of its own and needs no Close.
type Switch struct {
	client  *clientv3.Client
	options Options
}

// New returns a Switch on client, which stays the caller's. It does not wait for
// the server.
func New(client *clientv3.Client, options Options) *Switch {
	return &Switch{client: client, options: options.withDefaults()}
}

func (s *Switch) settingKey(name string) string { return s.options.Prefix + "/switch/" + name }

func (s *Switch) probeKey(name string) string { return s.options.Prefix + "/probe/" + name }

func (s *Switch) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.options.Deadline)
}

// Set replaces the setting of name if set.Revision is still the present one, and
// returns it with its revision. Otherwise the error matches
// fallback.ErrChanged. After another error nobody knows whether it was carried
// out; the watch tells. Remaining is not read: a new wait begins. By and Reason
// are cut to 1 KiB each.
func (s *Switch) Set(ctx context.Context, name string, set fallback.Setting) (fallback.Setting, error) {
	bounded, cancel := s.bounded(ctx)
	defer cancel()
	set.By, set.Reason = legible(set.By), legible(set.Reason)
	revision, err := s.set(bounded, s.settingKey(name), set)
	if err != nil {
		return fallback.Setting{}, fmt.Errorf("etcd: setting %q: %w", name, err)
	}
	set.Revision, set.Remaining = revision, set.Wait
	return set, nil
}

func (s *Switch) set(ctx context.Context, key string, set fallback.Setting) (revision int64, err error) {
	if err := check(set); err != nil {
		return 0, err
	}
	var lease clientv3.LeaseID
	if set.Wait > 0 {
		granted, err := s.client.Grant(ctx, seconds(set.Wait))
		if err != nil {
			return 0, err
		}
		lease = granted.ID
	}
	value, err := encode(set, lease)
	if err != nil {
		return 0, err
	}
	unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", set.Revision)
	done, err := s.client.Txn(ctx).If(unchanged).Then(clientv3.OpPut(key, value)).Commit()
	if err != nil {
		return 0, err
	}
	if !done.Succeeded {
		s.forget(ctx, lease)
		return 0, fallback.ErrChanged
	}
	return done.Header.Revision, nil
}

// forget gives a lease back that is not needed. It would end by itself.
func (s *Switch) forget(ctx context.Context, lease clientv3.LeaseID) {
	if lease != 0 {
		_, _ = s.client.Revoke(ctx, lease)
	}
}

// Probe takes the one permit to probe name. It falls back to the cluster when it
// is released, or else after ttl, which etcd rounds up to whole seconds and to the
// least that its election timeout allows (2 s by default). The error matches
// fallback.ErrTaken if another has it. Whoever has it ends the probe by ttl by
// itself: etcd cannot.
func (s *Switch) Probe(ctx context.Context, name string, ttl time.Duration) (release func(context.Context) error, err error) {
	bounded, cancel := s.bounded(ctx)
	defer cancel()
	lease, err := s.take(bounded, s.probeKey(name), ttl)
	if err != nil {
		return nil, fmt.Errorf("etcd: permit to probe %q: %w", name, err)
	}
	return func(ctx context.Context) error {
		bounded, cancel := s.bounded(ctx)
		defer cancel()
		_, err := s.client.Revoke(bounded, lease)
		if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return fmt.Errorf("etcd: giving back the permit to probe %q: %w", name, err)
		}
		return nil
	}, nil
}

// take creates a key under a lease unless it is there. It looks first: most that
// ask come too late, and need no lease to be told.
func (s *Switch) take(ctx context.Context, key string, ttl time.Duration) (clientv3.LeaseID, error) {
	if ttl <= 0 {
		return 0, fmt.Errorf("%w: a TTL of %v", ErrInvalid, ttl)
	}
	there, err := s.client.Get(ctx, key, clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	if there.Count > 0 {
		return 0, fallback.ErrTaken
	}
	lease, err := s.client.Grant(ctx, seconds(ttl))
	if err != nil {
		return 0, err
	}
	absent := clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
	done, err := s.client.Txn(ctx).If(absent).Then(clientv3.OpPut(key, "", clientv3.WithLease(lease.ID))).Commit()
	if err != nil {
		return 0, err
	}
	if !done.Succeeded {
		s.forget(ctx, lease.ID)
		return 0, fallback.ErrTaken
	}
	return lease.ID, nil
}
