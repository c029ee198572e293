//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cache"
	"github.com/intelliparadigm/haiku/cache/otter"
	"github.com/intelliparadigm/haiku/openai"
)

// poem answers every prompt with 64 tokens, each after a step.
type poem struct {
	step time.Duration
	runs atomic.Int64
}

func (p *poem) Generate(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
	p.runs.Add(1)
	for range 64 {
		if p.step > 0 {
			time.Sleep(p.step)
		}
		if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: " pond"}); err != nil {
			return err
		}
	}
	w.Finish(0, haiku.FinishStop)
	w.SetUsage(haiku.Usage{PromptTokens: 8, CompletionTokens: 64})
	return nil
}

// cacheTable measures the output tier: an exact hit over HTTP beside a map of
// bytes, many who ask for the same, and hit ratios by size.
func cacheTable(s settings) error {
	if err := hitsOverHTTP(s); err != nil {
		return err
	}
	if err := stampede(); err != nil {
		return err
	}
	if err := lookups(); err != nil {
		return err
	}
	return hitRatios(s)
}

const question = `{"model":"poem","stream":true,"temperature":0,"messages":[{"role":"user","content":"Write about an old silent pond."}]}`

// hitsOverHTTP serves an answer of 64 tokens from the cache, and the same bytes
// from a map by net/http alone; one client, one connection.
func hitsOverHTTP(s settings) error {
	tiers, err := cache.New(cache.Options{})
	if err != nil {
		return err
	}
	defer tiers.Close()
	cached := cache.Through(&poem{}, tiers, cache.Policy{})
	defer cached.Close()
	url, stop, err := listen(openai.Handler(cached))
	if err != nil {
		return err
	}
	defer stop()
	body, _, err := fetchOnce(url)
	if err != nil {
		return err
	}
	answers := map[string][]byte{question: body}
	fromMap := func(told bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			asked, _ := io.ReadAll(r.Body)
			answer := answers[string(asked)]
			w.Header().Set("Content-Type", "text/event-stream")
			if told {
				w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
			}
			_, _ = w.Write(answer)
		}
	}
	bare, stopBare, err := listen(fromMap(false))
	if err != nil {
		return err
	}
	defer stopBare()
	whole, stopWhole, err := listen(fromMap(true))
	if err != nil {
		return err
	}
	defer stopWhole()
	requests := 4000
	if s.quick {
		requests = 500
	}
	var first [3][]time.Duration
	for range requests {
		for i, at := range []string{bare, whole, url} {
			got, took, err := fetchOnce(at)
			if err != nil {
				return err
			}
			if i < 2 && len(got) != len(body) {
				return fmt.Errorf("the map has no answer: %d bytes", len(got))
			}
			first[i] = append(first[i], took)
		}
	}
	micros := func(list []time.Duration, q float64) float64 { return percentile(list, q).Seconds() * 1e6 }
	fmt.Printf("An answer of 64 tokens, %d bytes of events, first byte over HTTP/1.1 on loopback, one client, in turns:\n\n", len(body))
	fmt.Println("| way | first byte p50, µs | p99, µs | of net/http |\n| --- | ---: | ---: | ---: |")
	for i, name := range []string{"net/http, the bytes from a map by the body", "net/http, likewise, with their length told", "cache.Through behind openai.Handler, exact hit"} {
		fmt.Printf("| %s | %.0f | %.0f | %.2f× |\n", name, micros(first[i], 0.5), micros(first[i], 0.99), micros(first[i], 0.5)/micros(first[0], 0.5))
	}
	fmt.Println()
	return nil
}

// fetchOnce asks the question, and returns the answer and when its first byte
// came.
func fetchOnce(url string) ([]byte, time.Duration, error) {
	start := time.Now()
	resp, err := http.Post(url, "application/json", strings.NewReader(question))
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	var one [1]byte
	if _, err := io.ReadFull(resp.Body, one[:]); err != nil {
		return nil, 0, err
	}
	took := time.Since(start)
	rest, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return nil, 0, fmt.Errorf("%s: %s", resp.Status, rest)
	}
	return bytes.Join([][]byte{one[:], rest}, nil), took, err
}

// stampede has a thousand ask for the same at once.
func stampede() error {
	tiers, err := cache.New(cache.Options{})
	if err != nil {
		return err
	}
	defer tiers.Close()
	model := &poem{step: 2 * time.Millisecond}
	cached := cache.Through(model, tiers, cache.Policy{})
	defer cached.Close()
	var all sync.WaitGroup
	var failed atomic.Int64
	for range 1000 {
		all.Go(func() {
			text, err := haiku.NewStream(context.Background(), cached, &haiku.Request{Prompt: "the same"}).Text()
			if err != nil || len(text) != 64*5 {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	fmt.Printf("1,000 identical requests at once: %d generation, %d without the whole answer.\n\n", model.runs.Load(), failed.Load())
	return nil
}

// lookups measures what finding an entry takes.
func lookups() error {
	ctx, req := context.Background(), pondRequest("Write about an old silent pond.")
	few, similar, err := filled(100)
	if err != nil {
		return err
	}
	defer few.Close()
	many, _, err := filled(10_000)
	if err != nil {
		return err
	}
	defer many.Close()
	key := cache.KeyOf(req, "")
	if _, found := many.Similar(ctx, similar); !found {
		return errors.New("a similar question is not found")
	}
	fmt.Println("| operation | ns | allocations |\n| --- | ---: | ---: |")
	for _, op := range []struct {
		name  string
		times int
		run   func()
	}{
		{"key of a request", 200_000, func() { cache.KeyOf(req, "") }},
		{"output tier, hit", 200_000, func() { few.Get(key) }},
		{"route tier, hit", 200_000, func() { few.Route(ctx, key) }},
		{"vector of a question, without a model", 20_000, func() { _, _ = few.Meaning(ctx, req, "") }},
		{"vector tier, hit among 100, with the gates", 20_000, func() { few.Similar(ctx, similar) }},
		{"vector tier, hit among 10,000, with the gates", 2_000, func() { many.Similar(ctx, similar) }},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		for range op.times {
			op.run()
		}
		took := time.Since(start)
		runtime.ReadMemStats(&after)
		fmt.Printf("| %s | %d | %.1f |\n", op.name, int(took.Nanoseconds())/op.times, float64(after.Mallocs-before.Mallocs)/float64(op.times))
	}
	fmt.Println()
	return nil
}

func pondRequest(question string) *haiku.Request {
	return &haiku.Request{Tenant: "t", Model: "m", Messages: []haiku.Message{{Role: haiku.RoleUser, Content: question}}}
}

// filled returns tiers with n questions in one partition, one of which is about
// an old silent pond, and the same question in other letters.
func filled(n int) (*cache.Tiers, *cache.Meaning, error) {
	ctx := context.Background()
	tiers, err := cache.New(cache.Options{Semantic: &cache.Semantic{}})
	if err != nil {
		return nil, nil, err
	}
	for i := range n {
		req := pondRequest(fmt.Sprintf("What is known about number %d of %x?", i, i*i))
		w := cache.Write{Answer: &cache.Answer{}}
		if i == 0 {
			req = pondRequest("Write about an old silent pond.")
			w.Prompt, w.Route = cache.KeyOf(req, ""), &cache.Route{}
		}
		w.Key = cache.KeyOf(req, "")
		w.Meaning, err = tiers.Meaning(ctx, req, "")
		if err = errors.Join(err, tiers.SetAll(ctx, w)); err != nil {
			tiers.Close()
			return nil, nil, err
		}
	}
	similar, err := tiers.Meaning(ctx, pondRequest("write about an old, silent pond"), "")
	return tiers, similar, err
}

// hitRatios replays requests whose popularity follows Zipf's law.
func hitRatios(s settings) error {
	requests := 400_000
	if s.quick {
		requests = 50_000
	}
	const prompts, answerBytes = 200_000, 1000
	fmt.Printf("Hit ratio, Zipf 1.01 over %d prompts, %d requests, by room for so many answers:\n\n", prompts, requests)
	fmt.Println("| answers | ristretto used plainly | cache on ristretto | cache on otter |\n| ---: | ---: | ---: | ---: |")
	for _, capacity := range []int64{1_000, 10_000, 50_000} {
		plain, err := plainHits(capacity, requests, prompts)
		if err != nil {
			return err
		}
		var ratios []float64
		for _, open := range []func(int64) (cache.Store, error){cache.NewRistretto, otter.New} {
			ratio, err := storeHits(open, capacity, requests, prompts, answerBytes)
			if err != nil {
				return err
			}
			ratios = append(ratios, ratio)
		}
		fmt.Printf("| %d | %.3f | %.3f | %.3f |\n", capacity, plain, ratios[0], ratios[1])
	}
	return nil
}

func zipf(prompts uint64) *rand.Zipf {
	return rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.01, 1, prompts-1)
}

func plainHits(capacity int64, requests int, prompts uint64) (float64, error) {
	c, err := ristretto.NewCache(&ristretto.Config[uint64, bool]{NumCounters: 10 * capacity, MaxCost: capacity, BufferItems: 64, IgnoreInternalCost: true})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	z, hits := zipf(prompts), 0
	for range requests {
		id := z.Uint64()
		if _, ok := c.Get(id); ok {
			hits++
		} else {
			c.Set(id, true, 1)
		}
	}
	return float64(hits) / float64(requests), nil
}

func storeHits(open func(int64) (cache.Store, error), capacity int64, requests int, prompts uint64, size int) (float64, error) {
	answer := &cache.Answer{Tokens: []haiku.Token{{Text: strings.Repeat("x", size)}}}
	each, err := weigh(answer)
	if err != nil {
		return 0, err
	}
	store, err := open(capacity * each)
	if err != nil {
		return 0, err
	}
	tiers, err := cache.New(cache.Options{Store: store})
	if err != nil {
		return 0, err
	}
	defer tiers.Close()
	z, hits := zipf(prompts), 0
	for range requests {
		key := cache.KeyOf(&haiku.Request{PromptTokens: []int32{int32(z.Uint64())}}, "")
		if _, ok := tiers.Get(key); ok {
			hits++
		} else {
			_ = tiers.SetAll(context.Background(), cache.Write{Key: key, Answer: answer}) // what is dropped counts against it
		}
	}
	return float64(hits) / float64(requests), nil
}

// scales is a cache.Store that notes what the last record weighs.
type scales struct{ bytes int64 }

func (s *scales) Get(cache.Key) (*cache.Record, bool) { return nil, false }
func (s *scales) Delete(cache.Key)                    {}
func (s *scales) Bytes() int64                        { return s.bytes }
func (s *scales) Close()                              {}
func (s *scales) Set(_ cache.Key, _ *cache.Record, bytes int64, _ time.Duration) bool {
	s.bytes = bytes
	return true
}

// weigh returns what an answer takes of a store's room.
func weigh(answer *cache.Answer) (int64, error) {
	on := &scales{}
	tiers, err := cache.New(cache.Options{Store: on})
	if err != nil {
		return 0, err
	}
	defer tiers.Close()
	err = tiers.SetAll(context.Background(), cache.Write{Answer: answer})
	return on.bytes, err
}
