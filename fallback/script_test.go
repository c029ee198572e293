package fallback

import (
	"context"
	"sync"
	"time"

	"github.com/intelliparadigm/haiku"
)

// script is a Model that does what it is told, step by step, each time.
type script struct {
	name  string
	steps []step

	mu      sync.Mutex
	runs    int
	running int
	ended   []time.Time // of each run
	errs    []error     // what each run returned
}

// step is one thing that a script does. It reports whether the answer is over.
type step func(ctx context.Context, w *haiku.StreamWriter, u *haiku.Usage) (over bool, err error)

func does(name string, steps ...step) *script { return &script{name: name, steps: steps} }

func says(text string) step {
	return func(ctx context.Context, w *haiku.StreamWriter, u *haiku.Usage) (bool, error) {
		u.CompletionTokens++
		r, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: text})
		return r == haiku.Stopped, err
	}
}

// calls begins a tool call, with a part of its arguments.
func calls(arguments string) step {
	return func(ctx context.Context, w *haiku.StreamWriter, u *haiku.Usage) (bool, error) {
		u.CompletionTokens++
		_, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Delta: []byte(`"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":` + arguments + `"}}]`)})
		return false, err
	}
}

func takes(d time.Duration) step {
	return func(ctx context.Context, _ *haiku.StreamWriter, _ *haiku.Usage) (bool, error) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return false, nil
		case <-ctx.Done():
			return true, ctx.Err()
		}
	}
}

// hears is takes by a model that does not listen.
func hears(d time.Duration) step {
	return func(context.Context, *haiku.StreamWriter, *haiku.Usage) (bool, error) {
		elapse(d)
		return false, nil
	}
}

func hangs() step { return takes(1000 * time.Hour) }

func errs(err error) step {
	return func(context.Context, *haiku.StreamWriter, *haiku.Usage) (bool, error) { return true, err }
}

// ends is the good end.
func ends() step {
	return func(_ context.Context, w *haiku.StreamWriter, _ *haiku.Usage) (bool, error) {
		w.Finish(0, haiku.FinishStop)
		return true, nil
	}
}

func also(f func()) step {
	return func(context.Context, *haiku.StreamWriter, *haiku.Usage) (bool, error) { f(); return false, nil }
}

func (s *script) Generate(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) (err error) {
	s.mu.Lock()
	s.runs++
	s.running++
	s.mu.Unlock()
	used := haiku.Usage{PromptTokens: 10}
	defer func() {
		w.SetUsage(used)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running--
		s.ended = append(s.ended, time.Now())
		s.errs = append(s.errs, err)
	}()
	w.SetModel(s.name)
	for _, step := range s.steps {
		if over, err := step(ctx, w, &used); over || err != nil {
			return err
		}
	}
	return nil
}

// Models tells the name.
func (s *script) Models() []haiku.ModelInfo { return []haiku.ModelInfo{{ID: s.name}} }

func (s *script) count() (runs, running int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs, s.running
}

func (s *script) last() (at time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended[len(s.ended)-1], s.errs[len(s.errs)-1]
}
