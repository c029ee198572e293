//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
)

// busyTable keeps a device saturated with requests of the Azure trace, on the
// real engine in real time, and counts how long the device computes. Static
// batching, beside it, fills all places, and fills them again when the last of
// them is free.
func busyTable(s settings) error {
	visits, err := traceIfThere(s.azure, haikutest.ReadAzure)
	if err != nil || visits == nil {
		return err
	}
	span := 10 * time.Second
	if s.quick {
		span = 3 * time.Second
	}
	fmt.Printf("A fake device of 8 ms a step, 20 µs a prompt token, 50 µs a decode; requests of the Azure trace as fast as they are taken, %v each.\n\n", span)
	fmt.Println("| places | batching | device busy | engine between steps | no work | places used | tokens/s | of static |")
	fmt.Println("| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
	plot := chart{title: "Device use on the Azure trace", xLabel: "places", yLabel: "share of the time, or of the places"}
	plot.series = []series{{name: "device busy"}, {name: "places used"}, {name: "places, static"}}
	for _, places := range []int{8, 16, 32, 64} {
		static, err := saturate(visits, places, span, true)
		if err != nil {
			return err
		}
		continuous, err := saturate(visits, places, span, false)
		if err != nil {
			return err
		}
		printUse("static", static, static, places)
		printUse("continuous", continuous, static, places)
		for i, y := range []float64{busyShare(continuous), used(continuous, places), used(static, places)} {
			plot.series[i].x, plot.series[i].y = append(plot.series[i].x, float64(places)), append(plot.series[i].y, y)
		}
	}
	return s.plot("busy", plot)
}

func printUse(name string, u, static infer.Use, places int) {
	all := whole(u)
	fmt.Printf("| %d | %s | %.1f%% | %.1f%% | %.1f%% | %.0f%% | %.0f | %.2f× |\n", places, name, 100*busyShare(u), 100*u.Host.Seconds()/all, 100*u.Idle.Seconds()/all,
		100*used(u, places), rate(u), rate(u)/rate(static))
}

// whole is all the time that was counted, in seconds.
func whole(u infer.Use) float64 { return (u.Busy() + u.Host + u.Idle).Seconds() }

func busyShare(u infer.Use) float64 { return u.Busy().Seconds() / whole(u) }

// used is the share of the places that steps had items for.
func used(u infer.Use, places int) float64 { return float64(u.Items) / float64(u.Steps*places) }

// rate is how many tokens are decoded in a second.
func rate(u infer.Use) float64 {
	return float64(u.DecodeTokens) / whole(u)
}

// saturate serves requests for a time and returns how the device was used, from
// when all places were taken for the first time.
func saturate(visits []haikutest.Visit, places int, span time.Duration, static bool) (infer.Use, error) {
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
		req := visits[n%len(visits)].Request(n)
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

// traceIfThere is trace for a table that is left out where there is no such file:
// it says so, and returns nil.
func traceIfThere(path string, read func(io.Reader) ([]haikutest.Visit, error)) ([]haikutest.Visit, error) {
	visits, err := trace(path, read)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Printf("left out: the trace is not at %s\n", path)
		return nil, nil
	}
	return visits, err
}

// trace reads a file of recorded requests.
func trace(path string, read func(io.Reader) ([]haikutest.Visit, error)) ([]haikutest.Visit, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return read(file)
}
