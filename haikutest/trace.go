package haikutest

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/intelliparadigm/haiku"
)

// Visit is one request of a recorded trace: when it came and how large it was.
type Visit struct {
	At                         time.Duration // since the first
	PromptTokens, OutputTokens int
	// Prefix names the prompt's blocks of [PrefixTokens] tokens, the last perhaps
	// not full: equal names at the same place are equal tokens. Empty if the
	// trace does not tell.
	Prefix []int64
}

// PrefixTokens is the size of a block in Visit.Prefix.
const PrefixTokens = 512

// Request is a visit as a request to a fake executor: a prompt of as many tokens
// that is, but for what Prefix shares, no other number's, and an answer that ends
// after OutputTokens. The fake answers it with noise of that length.
func (v Visit) Request(number int) *haiku.Request {
	prompt := make([]int32, 0, v.PromptTokens)
	for i := range (v.PromptTokens + PrefixTokens - 1) / PrefixTokens {
		seed := [2]uint64{uint64(number), uint64(i) | 1<<63}
		if i < len(v.Prefix) {
			seed = [2]uint64{uint64(v.Prefix[i]), 0}
		}
		random := rand.New(rand.NewPCG(seed[0], seed[1]))
		for range min(PrefixTokens, v.PromptTokens-len(prompt)) {
			prompt = append(prompt, byteToken+random.Int32N(256))
		}
	}
	return &haiku.Request{PromptTokens: prompt, MaxTokens: v.OutputTokens}
}

// ReadAzure reads a trace of Azure's LLM inference service: CSV with a header and
// the columns TIMESTAMP, ContextTokens and GeneratedTokens.
func ReadAzure(r io.Reader) ([]Visit, error) {
	rows, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("haikutest: trace: %w", err)
	}
	var list []Visit
	var first time.Time
	for i, row := range rows[min(1, len(rows)):] {
		if len(row) < 3 {
			return nil, fmt.Errorf("haikutest: trace: request %d has %d columns", i, len(row))
		}
		at, errAt := time.Parse("2006-01-02 15:04:05", row[0]) // with any fraction
		prompt, errPrompt := strconv.Atoi(row[1])
		output, errOutput := strconv.Atoi(row[2])
		if err := errors.Join(errAt, errPrompt, errOutput); err != nil {
			return nil, fmt.Errorf("haikutest: trace: request %d: %w", i, err)
		}
		if i == 0 {
			first = at
		}
		list = append(list, Visit{At: at.Sub(first), PromptTokens: prompt, OutputTokens: output})
	}
	return checked(list)
}

// ReadMooncake reads a trace of Mooncake: a JSON object a line with timestamp (in
// milliseconds), input_length, output_length and hash_ids.
func ReadMooncake(r io.Reader) ([]Visit, error) {
	var list []Visit
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var row struct {
			Timestamp float64
			Input     int     `json:"input_length"`
			Output    int     `json:"output_length"`
			Hashes    []int64 `json:"hash_ids"`
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			return nil, fmt.Errorf("haikutest: trace: request %d: %w", len(list), err)
		}
		list = append(list, Visit{
			At: time.Duration(row.Timestamp * float64(time.Millisecond)), PromptTokens: row.Input, OutputTokens: row.Output, Prefix: row.Hashes,
		})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("haikutest: trace: request %d: %w", len(list), err)
	}
	return checked(list)
}

// checked refuses what cannot be replayed.
func checked(list []Visit) ([]Visit, error) {
	for i, v := range list {
		if v.At < 0 || v.PromptTokens < 1 || v.OutputTokens < 1 || (i > 0 && v.At < list[i-1].At) {
			return nil, fmt.Errorf("haikutest: trace: request %d comes at %v with %d tokens and asks for %d", i, v.At, v.PromptTokens, v.OutputTokens)
		}
	}
	if len(list) == 0 {
		return nil, errors.New("haikutest: trace: it is empty")
	}
	for i := len(list) - 1; i >= 0; i-- {
		list[i].At -= list[0].At
	}
	return list, nil
}

// Outcome is what became of one request of a replay. The times are since its
// arrival.
type Outcome struct {
	First, Last time.Duration // of its tokens, 0 without one
	Usage       haiku.Usage
	Err         error
}

// Replay sends the requests that visits make to m, each at its time, reads all
// answers, and returns what became of each, in order. In a bubble of
// testing/synctest hours take moments. When ctx ends, those under way end with
// its error, and so do those that have not begun.
func Replay(ctx context.Context, m haiku.Model, visits []Visit) []Outcome {
	outcomes := make([]Outcome, len(visits))
	start := time.Now()
	var all sync.WaitGroup
	for i, v := range visits {
		if err := wait(ctx, v.At-time.Since(start)); err != nil {
			outcomes[i].Err = err
			continue
		}
		all.Go(func() { outcomes[i] = replayed(ctx, m, v.Request(i)) })
	}
	all.Wait()
	return outcomes
}

func replayed(ctx context.Context, m haiku.Model, req *haiku.Request) (o Outcome) {
	start := time.Now()
	stream := haiku.NewStream(ctx, m, req)
	for _, err := range stream.Tokens() {
		if err != nil {
			o.Err = err
			break
		}
		if o.Last = time.Since(start); o.First == 0 {
			o.First = o.Last
		}
	}
	o.Usage = stream.Usage()
	return o
}
