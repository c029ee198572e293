package ring

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNoWakeupWhileTheConsumerIsAwake(t *testing.T) {
	r := newRing(t, Config{})
	for range 20 {
		require.True(t, r.TryPush(Slot{}, nil, nil))
		r.Advance()
	}
	require.False(t, pushAndPark(r), "a record is there: no sleep")
	require.Equal(t, uint64(0), r.Stats().Wakeups)
	require.Empty(t, r.Wake())
}

func pushAndPark(r *Ring) bool {
	r.TryPush(Slot{}, nil, nil)
	return r.Park()
}

func TestOneWakeupPerSleep(t *testing.T) {
	r := newRing(t, Config{})
	for sleep := range 5 {
		require.True(t, r.Park())
		for range 10 {
			require.True(t, r.TryPush(Slot{}, nil, nil))
		}
		require.Equal(t, uint64(sleep+1), r.Stats().Wakeups)
		<-r.Wake()
		r.Unpark()
		require.Empty(t, r.Wake())
		for range 10 {
			r.Advance()
		}
	}
}

func TestUnparkTakesBackTheWakeup(t *testing.T) {
	r := newRing(t, Config{})
	require.True(t, r.Park())
	r.Unpark() // a keepalive was due
	require.True(t, r.TryPush(Slot{}, nil, nil))
	require.Equal(t, uint64(0), r.Stats().Wakeups)
	r.Advance()

	require.True(t, r.Park())
	require.True(t, r.TryPush(Slot{}, nil, nil))
	r.Unpark() // something else ended the sleep, and the wake-up came too
	require.Empty(t, r.Wake())
	require.Equal(t, uint64(1), r.Stats().Wakeups)
}

func TestPokeEndsASleepWithoutARecord(t *testing.T) {
	r := newRing(t, Config{})
	r.Poke()
	r.Poke() // one is enough, and nobody waits for the second
	require.True(t, r.Park(), "a poke is no record")
	<-r.Wake()
	r.Unpark()
	require.Empty(t, r.Wake())
	require.True(t, r.TryPush(Slot{}, nil, nil))
	require.Equal(t, Stats{HighWater: 1}, r.Stats(), "awake since: no wake-up for the record")
}

func TestCloseWakesTheSleeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t, Config{})
		cause := errors.New("shut down")
		go func() {
			<-time.After(time.Hour)
			r.Close(cause)
		}()
		start := time.Now()
		require.True(t, r.Park())
		<-r.Wake()
		r.Unpark()
		require.Equal(t, time.Hour, time.Since(start))
		require.False(t, r.Park(), "closed: no more sleep")
		done, err := r.Done()
		require.True(t, done)
		require.Equal(t, cause, err)
		require.Equal(t, uint64(1), r.Stats().Wakeups)
	})
}

// TestSlowProducerWakesTheConsumerForEachToken has the consumer asleep at every
// token, as in decoding: each token is read at the instant it was pushed.
func TestSlowProducerWakesTheConsumerForEachToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t, Config{Slots: 4})
		const tokens, gap = 50, 20 * time.Millisecond
		start := time.Now()
		go func() {
			for i := range tokens {
				<-time.After(gap)
				r.TryPush(Slot{Token: int32(i)}, nil, nil)
			}
			<-time.After(gap)
			r.Close(nil)
		}()
		var arrived []time.Duration
		for range drain(r) {
			arrived = append(arrived, time.Since(start))
		}
		require.Len(t, arrived, tokens)
		for i, at := range arrived {
			require.Equal(t, time.Duration(i+1)*gap, at)
		}
		require.Equal(t, Stats{Wakeups: tokens + 1, HighWater: 1}, r.Stats())
	})
}

// drain ranges over a ring's records as its handler does.
func drain(r *Ring) func(yield func(Slot) bool) {
	return func(yield func(Slot) bool) {
		for {
			s, _, _, ok := r.Peek()
			if ok {
				if !yield(s) {
					return
				}
				r.Advance()
				continue
			}
			if done, _ := r.Done(); done {
				return
			}
			if r.Park() {
				<-r.Wake()
				r.Unpark()
			}
		}
	}
}

func TestSpaceIsAnnouncedAtHalf(t *testing.T) {
	r := newRing(t, Config{Slots: 8})
	for range 8 {
		require.True(t, r.TryPush(Slot{}, nil, nil))
	}
	require.False(t, r.TryPush(Slot{}, nil, nil))
	require.True(t, r.ArmSpace())
	for range 3 {
		r.Advance()
		require.Empty(t, r.Space())
	}
	r.Advance()
	<-r.Space()
	for range 4 {
		r.Advance() // not armed: silent
	}
	require.Empty(t, r.Space())
	require.Equal(t, Stats{SpaceWakeups: 1, Full: 1, HighWater: 8}, r.Stats())
	require.False(t, r.ArmSpace(), "room is there")
	require.Empty(t, r.Space())
}

func TestArenaSpaceIsAnnouncedAtHalf(t *testing.T) {
	r := newRing(t, Config{Slots: 64, ArenaBytes: 64})
	for range 4 {
		require.True(t, r.TryPush(Slot{}, make([]byte, 16), nil))
	}
	require.True(t, r.ArmSpace(), "slots are free, the arena is not")
	r.Advance()
	require.Empty(t, r.Space())
	r.Advance()
	<-r.Space()
	require.True(t, r.TryPush(Slot{}, make([]byte, r.MaxPayload()), nil))
}

func TestOnSpaceReplacesTheChannel(t *testing.T) {
	calls := 0
	r := newRing(t, Config{Slots: 1, OnSpace: func() { calls++ }})
	for i := range 3 {
		require.True(t, r.TryPush(Slot{}, nil, nil))
		require.True(t, r.ArmSpace())
		r.Advance()
		require.Equal(t, i+1, calls)
	}
	require.Empty(t, r.Space())
	require.Equal(t, uint64(3), r.Stats().SpaceWakeups)
}

// TestTwoGoroutines runs both sides at full speed, each sleeping whenever it
// can; a lost wake-up hangs it, a torn record fails it.
func TestTwoGoroutines(t *testing.T) {
	for _, cfg := range []Config{
		{Slots: 1}, {Slots: 2, ArenaBytes: 64}, {Slots: 64, Reserve: 1, ArenaBytes: 256},
	} {
		r := newRing(t, cfg)
		const records = 30_000
		var producer sync.WaitGroup
		producer.Go(func() { produce(r, records) })
		var sleeps, read uint64
		for {
			s, text, aux, ok := r.Peek()
			if ok {
				wantText, wantAux := payloadOf(r, read)
				require.Equal(t, int32(read), s.Token)
				require.Equal(t, string(wantText), string(text))
				require.Equal(t, string(wantAux), string(aux))
				r.Advance()
				read++
				continue
			}
			if done, err := r.Done(); done {
				require.NoError(t, err)
				break
			}
			if r.Park() {
				<-r.Wake()
				r.Unpark()
			}
			sleeps++
		}
		producer.Wait()
		require.Equal(t, uint64(records), read)
		require.LessOrEqual(t, r.Stats().Wakeups, sleeps)
		require.NoError(t, r.check())
	}
}

// produce pushes n records and waits for room when there is none.
func produce(r *Ring, n uint64) {
	for i := range n {
		text, aux := payloadOf(r, i)
		for !r.TryPush(Slot{Token: int32(i)}, text, aux) {
			if r.ArmSpace() {
				<-r.Space()
			}
		}
		if i%97 == 0 {
			runtime.Gosched() // let the consumer run dry at times
		}
	}
	r.Close(nil)
}

// payloadOf derives record i's text and aux from i.
func payloadOf(r *Ring, i uint64) (text, aux []byte) {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	room := r.MaxPayload()
	textLen := int(i % uint64(room/2+1))
	auxLen := int(i * 7 % uint64(room/2+1))
	return []byte(letters[:min(textLen, 26)]), []byte(letters[26-min(auxLen, 26):])
}

// TestNoWakeupIsLostInLockstep pushes each record at the moment the consumer,
// having read the last one, goes to sleep. A lost wake-up is never made good by
// a later push, since there is none until the consumer has read this one.
func TestNoWakeupIsLostInLockstep(t *testing.T) {
	r := newRing(t, Config{Slots: 1})
	const records = 100_000
	stop := make(chan struct{})
	var producer sync.WaitGroup
	producer.Go(func() {
		for i := range records {
			for spin := 1; r.Len() > 0; spin++ {
				if spin%200 != 0 {
					continue // stay close behind the consumer
				}
				select {
				case <-stop:
					return
				default:
					runtime.Gosched()
				}
			}
			r.TryPush(Slot{Token: int32(i)}, nil, nil)
		}
	})
	defer producer.Wait()
	defer close(stop)
	watchdog := time.After(20 * time.Second)
	for read := 0; read < records; {
		if s, _, _, ok := r.Peek(); ok {
			require.Equal(t, int32(read), s.Token)
			r.Advance()
			read++
		} else if r.Park() {
			select {
			case <-r.Wake():
			case <-watchdog:
				require.Zero(t, r.Len(), "asleep beside a record")
				require.Fail(t, "too slow")
			}
			r.Unpark()
		}
	}
}
