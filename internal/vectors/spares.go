package vectors

import "sync"

// spares keeps what a search works with for the next one. Unlike sync.Pool it
// forgets nothing when garbage is collected; it holds as many as there ever
// were searches at once.
type spares[T any] struct {
	mu   sync.Mutex
	free []*T
}

// get returns a spare one, or a zero one.
func (s *spares[T]) get() *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == 0 {
		return new(T)
	}
	v := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return v
}

func (s *spares[T]) put(v *T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, v)
}
