//go:build unix

package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/openai"
)

// streamsTable holds many streams open at once on the fake executor, whose
// steps are far enough apart that a token's latency is the way it takes, not
// the wait for the one before it.
func streamsTable(s settings) error {
	streams, tokens, pace := 1000, 60, 200*time.Millisecond
	if s.quick {
		streams, tokens = 200, 20
	}
	idle, err := idleMemory(streams)
	if err != nil {
		return err
	}
	busy, latencies, err := streamingMemory(streams, tokens, pace)
	if err != nil {
		return err
	}
	slices.Sort(latencies)
	at := func(q float64) float64 {
		return float64(latencies[int(q*float64(len(latencies)-1))].Microseconds()) / 1000
	}
	fmt.Printf("%d streams, one token each every %v, %d tokens\n\n", streams, pace, len(latencies))
	fmt.Printf("| | |\n| --- | ---: |\n")
	fmt.Printf("| memory per connection, net/http alone, handler waiting | %.1f KiB |\n", idle/1024)
	fmt.Printf("| memory per stream beyond that | %.1f KiB |\n", (busy-idle)/1024)
	fmt.Printf("| from the step's end to the flush's, p50 | %.2f ms |\n", at(0.5))
	fmt.Printf("| p99 | %.2f ms |\n", at(0.99))
	fmt.Printf("| the same per stream, p99 / %d streams | %.2f µs |\n", streams, at(0.99)*1000/float64(streams))
	return nil
}

// memory is what the heap and the stacks hold after a collection, in bytes.
func memory() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// idleMemory is the memory per connection of handlers that have sent their
// headers and wait.
func idleMemory(streams int) (float64, error) {
	release := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Add(streams)
	before := memory()
	url, stop, err := listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		waiting.Done()
		<-release
	}))
	if err != nil {
		return 0, err
	}
	defer stop()
	done := make(chan error, 1)
	go func() {
		_, err := drive(load{URL: url, Body: chatBody, Conns: streams, Requests: 1})
		done <- err
	}()
	waiting.Wait()
	used := (memory() - before) / float64(streams)
	close(release)
	return used, <-done
}

// stamped is the fake executor with the time of its last step's end.
type stamped struct {
	*haikutest.Executor
	ended atomic.Int64 // since start, in nanoseconds
	start time.Time
}

func (s *stamped) Step(ctx context.Context, b *infer.Batch) error {
	err := s.Executor.Step(ctx, b)
	s.ended.Store(int64(time.Since(s.start)))
	return err
}

// latencyWriter notes how long after the step each flush is through.
type latencyWriter struct {
	http.ResponseWriter
	exec *stamped
	seen []time.Duration
}

func (l *latencyWriter) Unwrap() http.ResponseWriter { return l.ResponseWriter }

func (l *latencyWriter) FlushError() error {
	err := http.NewResponseController(l.ResponseWriter).Flush()
	l.seen = append(l.seen, time.Since(l.exec.start)-time.Duration(l.exec.ended.Load()))
	return err
}

func streamingMemory(streams, tokens int, pace time.Duration) (perStream float64, latencies []time.Duration, err error) {
	words := make([]string, tokens)
	for i := range words {
		words[i] = fmt.Sprintf("word%d ", i)
	}
	fake := haikutest.New(haikutest.Config{
		Pieces: words, Answer: func(string) []string { return words },
		ContextTokens: 256, Blocks: 16 * streams, Costs: haikutest.Costs{Step: pace},
	})
	exec := &stamped{Executor: fake, start: time.Now()}
	engine, err := infer.New(exec, fake.Text(), infer.Options{Name: "bench", MaxSequences: streams, MaxQueued: streams, MaxBatchTokens: 64 * streams})
	if err != nil {
		return 0, nil, err
	}
	defer engine.Close()
	var mu sync.Mutex
	before := memory()
	url, stop, err := listen(openai.Handler(engine, func(next haiku.InferenceHandler) haiku.InferenceHandler {
		return haiku.HandlerFunc(func(c *haiku.Context) {
			l := &latencyWriter{ResponseWriter: c.Writer, exec: exec}
			c.Writer = l
			next.ServeInference(c)
			mu.Lock()
			defer mu.Unlock()
			latencies = append(latencies, l.seen[1:]...) // the first waits for the opening of all
		})
	}))
	if err != nil {
		return 0, nil, err
	}
	defer stop()
	done := make(chan error, 1)
	go func() {
		body := strings.Replace(chatBody, `"stream":true`, fmt.Sprintf(`"stream":true,"max_tokens":%d`, tokens), 1)
		_, err := drive(load{URL: url, Body: body, Conns: streams, Requests: 1})
		done <- err
	}()
	for fake.Counts().LargestBatch < streams {
		select {
		case err := <-done:
			return 0, nil, fmt.Errorf("the clients ended early: %w", err)
		case <-time.After(pace):
		}
	}
	<-time.After(3 * pace)
	perStream = (memory() - before) / float64(streams)
	err = <-done
	return perStream, latencies, err
}
