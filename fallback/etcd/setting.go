package etcd

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/intelliparadigm/haiku/fallback"
)

// wire is a setting as it stands in etcd.
type wire struct {
	State  string  `json:"state"`
	Forced bool    `json:"forced,omitzero"`
	Share  float64 `json:"share,omitzero"`
	Wait   string  `json:"wait,omitzero"`
	Lease  string  `json:"lease,omitzero"` // in hexadecimal digits, as etcdctl shows it
	By     string  `json:"by,omitzero"`
	Reason string  `json:"reason,omitzero"`
}

// encode returns the value of a setting; lease is 0 if it has none.
func encode(s fallback.Setting, lease clientv3.LeaseID) (string, error) {
	if err := check(s); err != nil {
		return "", err
	}
	w := wire{State: s.State.String(), Forced: s.Forced, Share: s.Share, By: s.By, Reason: s.Reason}
	if s.Wait > 0 {
		w.Wait = s.Wait.String()
	}
	if lease != 0 {
		w.Lease = strconv.FormatInt(int64(lease), 16)
	}
	value, err := json.Marshal(w)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return string(value), nil
}

// textBytes bounds what is said to people.
const textBytes = 1 << 10

// legible cuts and mends a text, which may stem from anywhere, for JSON.
func legible(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), textBytes)], "")
}

// check refuses what no reader would understand.
func check(s fallback.Setting) error {
	switch {
	case s.State > fallback.HalfOpen:
		return fmt.Errorf("%w: state %d", ErrInvalid, s.State)
	case !(s.Share >= 0 && s.Share <= 1):
		return fmt.Errorf("%w: a share of %v", ErrInvalid, s.Share)
	case s.Wait < 0:
		return fmt.Errorf("%w: a wait of %v", ErrInvalid, s.Wait)
	}
	return nil
}

// decode reads a value, which anybody may have written. What it does not
// understand is an error, and not half a setting.
func decode(value []byte) (s fallback.Setting, lease clientv3.LeaseID, err error) {
	var w wire
	if err := json.Unmarshal(value, &w, json.RejectUnknownMembers(true)); err != nil {
		return s, 0, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	s = fallback.Setting{Forced: w.Forced, Share: w.Share, By: w.By, Reason: w.Reason}
	if s.State, err = stateOf(w.State); err != nil {
		return s, 0, err
	}
	if w.Wait != "" {
		if s.Wait, err = time.ParseDuration(w.Wait); err != nil {
			return s, 0, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	if w.Lease != "" {
		id, err := strconv.ParseInt(w.Lease, 16, 64)
		if err != nil {
			return s, 0, fmt.Errorf("%w: a lease: %w", ErrInvalid, err)
		}
		lease = clientv3.LeaseID(id)
	}
	return s, lease, check(s)
}

func stateOf(name string) (fallback.State, error) {
	for state := range fallback.HalfOpen + 1 {
		if state.String() == name {
			return state, nil
		}
	}
	return 0, fmt.Errorf("%w: state %q", ErrInvalid, name)
}

// left returns what is left of a wait by what etcd says of the lease that has
// measured it from the beginning: granted and remaining seconds, the latter
// rounded down, and negative once the lease is over.
func left(wait time.Duration, granted, remaining int64) time.Duration {
	if remaining < 0 {
		return 0
	}
	passed := time.Duration(max(0, granted-remaining-1)) * time.Second
	return max(0, wait-passed)
}

// seconds is a time as leases count it, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
