//go:build unix

package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
)

// size is what one request of a trace asks of the device, in tokens.
type size struct{ prompt, output int }

// busyTable keeps a device saturated with requests of the Azure trace, on the
// real engine in real time, and counts how long the device computes. Static
// batching, beside it, fills all places, and fills them again when the last of
// them is free.
func busyTable(s settings) error {
	sizes, err := azureSizes(s.azure)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Printf("left out: the trace is not at %s\n", s.azure)
		return nil
	}
	if err != nil {
		return err
	}
	const places = 64
	span := 20 * time.Second
	if s.quick {
		span = 4 * time.Second
	}
	fmt.Printf("A fake device of 8 ms a step, 20 µs a prompt token, 50 µs a decode; %d places, requests of the Azure trace as fast as they are taken, %v each.\n\n", places, span)
	fmt.Println("| batching | device busy | engine between steps | no work | places used | tokens/s | of static |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
	static, err := saturate(sizes, places, span, true)
	if err != nil {
		return err
	}
	continuous, err := saturate(sizes, places, span, false)
	if err != nil {
		return err
	}
	for _, row := range []struct {
		name string
		use  infer.Use
	}{{"static", static}, {"continuous", continuous}} {
		u := row.use
		all := float64(u.Busy() + u.Host + u.Idle)
		fmt.Printf("| %s | %.1f%% | %.1f%% | %.1f%% | %.0f%% | %.0f | %.2f× |\n", row.name, 100*float64(u.Busy())/all, 100*float64(u.Host)/all, 100*float64(u.Idle)/all,
			100*float64(u.Items)/float64(u.Steps*places), rate(u), rate(u)/rate(static))
	}
	return nil
}

// rate is how many tokens are decoded in a second.
func rate(u infer.Use) float64 {
	return float64(u.DecodeTokens) / (u.Busy() + u.Host + u.Idle).Seconds()
}

// saturate serves requests for a time and returns how the device was used, from
// when all places were taken for the first time.
func saturate(sizes []size, places int, span time.Duration, static bool) (infer.Use, error) {
	exec := haikutest.New(haikutest.Config{
		ContextTokens: 16384, Blocks: plentyOfBlocks,
		Costs: haikutest.Costs{Step: gpu.step, PrefillToken: gpu.prefillToken, DecodeSequence: gpu.decode},
	})
	engine, err := infer.New(exec, exec.Text(), infer.Options{MaxSequences: places, MaxBatchTokens: 512})
	if err != nil {
		return infer.Use{}, err
	}
	defer engine.Close()
	ctx, cancel := context.WithTimeout(context.Background(), span)
	defer cancel()
	var number atomic.Int64
	one := func() {
		n := int(number.Add(1))
		z := sizes[n%len(sizes)]
		req := &haiku.Request{PromptTokens: newVisit(0, 0, z.prompt, 1).prompt, MaxTokens: z.output}
		for i := range req.PromptTokens { // different from the first block on
			req.PromptTokens[i] = int32(3 + (n>>(i%24)+i)%256)
		}
		for range haiku.NewStream(ctx, engine, req).Tokens() {
		}
	}
	var all sync.WaitGroup
	if static {
		all.Go(func() {
			for ctx.Err() == nil {
				var wave sync.WaitGroup
				for range places {
					wave.Go(one)
				}
				wave.Wait()
			}
		})
	} else {
		for range 2 * places {
			all.Go(func() {
				for ctx.Err() == nil {
					one()
				}
			})
		}
	}
	<-time.After(span / 10)
	before := engine.Stats().Use
	<-time.After(span * 8 / 10)
	after := engine.Stats().Use
	cancel()
	all.Wait()
	after.Steps -= before.Steps
	after.Items -= before.Items
	after.DecodeTokens -= before.DecodeTokens
	after.Prefill -= before.Prefill
	after.Decode -= before.Decode
	after.Mixed -= before.Mixed
	after.Host -= before.Host
	after.Idle -= before.Idle
	return after, nil
}

// azureSizes reads the tokens of each request's prompt and answer.
func azureSizes(path string) ([]size, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var list []size
	for i, row := range rows[min(1, len(rows)):] {
		prompt, errPrompt := strconv.Atoi(row[1])
		output, errOutput := strconv.Atoi(row[2])
		if errPrompt != nil || errOutput != nil || prompt < 1 || output < 1 {
			return nil, fmt.Errorf("%s: request %d is not a pair of token counts", path, i)
		}
		list = append(list, size{prompt, output})
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no requests", path)
	}
	return list, nil
}
