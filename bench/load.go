//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cpu"
	"github.com/intelliparadigm/haiku/infer"
)

// loadTable shows what opening a model costs. Each row is measured in a process
// of its own: the time of infer.Open with the file in the page cache, and the
// resident memory that belongs to the file (RssFile) and to the process
// (RssAnon) after Open and after a prompt and some tokens, which read every
// weight. The part of the file that is touched is its tensors without the
// embeddings of tokens that did not occur; the output is tied to the embedding,
// so here it is all of them.
func loadTable(s settings) error {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		fmt.Println("left out: this system has no /proc")
		return nil
	}
	dir, clean, err := s.directory()
	if err != nil {
		return err
	}
	defer clean()
	fmt.Printf("| format | file, MiB | open, ms | file pages after open, MiB | after use, MiB | of the file | heap and KV after use, MiB |\n")
	fmt.Printf("| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, format := range modelFormats {
		path, err := syntheticFile(format, dir)
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		var best loadCost
		for range min(s.rounds, 3) {
			cost, err := measureLoad(path)
			if err != nil {
				return err
			}
			if best.OpenMS == 0 || cost.OpenMS < best.OpenMS {
				best = cost
			}
		}
		const mib = 1 << 20
		size := float64(info.Size()) / mib
		fmt.Printf("| %s | %.1f | %.1f | %.1f | %.1f | %.2f× | %.1f |\n", format, size, best.OpenMS, best.FileOpened, best.FileUsed, best.FileUsed/size, best.AnonUsed)
	}
	return nil
}

// loadCost is what one process saw, memory in MiB beyond what it had before.
type loadCost struct{ OpenMS, FileOpened, FileUsed, AnonUsed float64 }

func measureLoad(path string) (cost loadCost, err error) {
	cmd := exec.Command(os.Args[0], "client", "-open", path)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return cost, fmt.Errorf("client: %w", err)
	}
	return cost, json.Unmarshal(out, &cost)
}

// openMain is the process: it opens the model and uses it.
func openMain(path string) error {
	if _, err := os.ReadFile(path); err != nil { // into the page cache
		return err
	}
	debug.FreeOSMemory()
	fileBefore, anonBefore := resident()
	start := time.Now()
	backend := cpu.Options{Threads: runtime.GOMAXPROCS(0), ContextTokens: 128, KVBytes: 64 << 20, MaxBatchTokens: 64}.New()
	engine, err := infer.Open(path, backend)
	if err != nil {
		return err
	}
	cost := loadCost{OpenMS: time.Since(start).Seconds() * 1000}
	file, _ := resident()
	cost.FileOpened = file - fileBefore
	prompt := make([]int32, 50)
	for i := range prompt {
		prompt[i] = int32(300 + i)
	}
	request := &haiku.Request{PromptTokens: prompt, MaxTokens: 8}
	if _, err := haiku.NewStream(context.Background(), engine, request).Text(); err != nil {
		return err
	}
	debug.FreeOSMemory()
	file, anon := resident()
	cost.FileUsed, cost.AnonUsed = file-fileBefore, anon-anonBefore
	if err := json.NewEncoder(os.Stdout).Encode(cost); err != nil {
		return err
	}
	return engine.Close()
}

// resident returns the process's memory in MiB: pages of files and its own.
func resident() (file, anon float64) {
	status, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, 0
	}
	defer status.Close()
	for lines := bufio.NewScanner(status); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		kib, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		switch name {
		case "RssFile":
			file = kib / 1024
		case "RssAnon":
			anon = kib / 1024
		}
	}
	return file, anon
}

// clientMain is what this program does in a second process.
func clientMain(args []string) error {
	flags := flag.NewFlagSet("client", flag.ContinueOnError)
	text := flags.String("load", "", "JSON of the load")
	path := flags.String("open", "", "`file` to open and use")
	engine := flags.String("engine", "", "JSON of an engine to be")
	sick := flags.String("chaos-engine", "", "JSON of an engine to be that can be made sick")
	chaos := flags.String("chaos-load", "", "JSON of the load of the chaos table")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case *path != "":
		return openMain(*path)
	case *engine != "":
		return engineMain(*engine)
	case *sick != "":
		return chaosEngineMain(*sick)
	case *chaos != "":
		return taskMain(*chaos, chaosLoad.run)
	}
	return taskMain(*text, load.run)
}
