package replicas

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/intelliparadigm/haiku/fallback"
)

// news is what a replica tells: the handler of its logger, and its changes.
type news struct {
	mu      sync.Mutex
	lines   []string
	changes []fallback.Change
}

// Enabled and the others are a slog.Handler's.
func (*news) Enabled(context.Context, slog.Level) bool { return true }

func (n *news) Handle(_ context.Context, r slog.Record) error {
	line := &strings.Builder{}
	fmt.Fprintf(line, "%s %v %s", r.Time.Format("05.000"), r.Level, r.Message)
	r.Attrs(func(a slog.Attr) bool { fmt.Fprintf(line, " %v", a); return true })
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, line.String())
	return nil
}

func (n *news) WithAttrs([]slog.Attr) slog.Handler { return n }

func (n *news) WithGroup(string) slog.Handler { return n }

func (n *news) change(c fallback.Change) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changes = append(n.changes, c)
}

// said returns how many lines have all of some texts.
func (n *news) said(texts ...string) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, line := range n.lines {
		has := true
		for _, text := range texts {
			has = has && strings.Contains(line, text)
		}
		if has {
			count++
		}
	}
	return count
}

// moves returns how many changes there were, and how many of them to a state.
func (n *news) moves(to fallback.State) (all, there int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.changes {
		all += 1 + c.Merged
		if c.To == to {
			there++
		}
	}
	return all, there
}

// last returns where the last change went.
func (n *news) last() fallback.State {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.changes) == 0 {
		return fallback.Closed
	}
	return n.changes[len(n.changes)-1].To
}

func (n *news) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.lines, "\n")
}
