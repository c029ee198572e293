//go:build unix

// Bench prints tables that put Haiku beside what it is compared with, measured
// in one run on one machine. Quote the ratios, not the times.
//
//	go run ./bench                # all tables
//	go run ./bench -run '^token$' # one of: token, streams, cpu, load, long, adapters, tokenizer, window, busy, chunked, overload,
//	                              # prefix, decision, cache, vectors-random, vectors-text, threshold, jitter, gates, breaker,
//	                              # proxy, paced, chaos, http
//
// Tables that need a second process start this program again as a client, so
// that the client's work is not counted as the server's.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// tables in the order in which they are printed.
var tables = []struct {
	name, title string
	print       func(settings) error
}{
	{"token", "One token through ring, SSE and flush (server CPU per token, HTTP/1.1 over loopback)", tokenTable},
	{"streams", "1,000 concurrent streams over the fake executor", streamsTable},
	{"cpu", "cpu executor (tokens per second)", cpuTable},
	{"load", "Opening a model: 100 million parameters, one process per row", loadTable},
	{"long", "Decode and prefill at a context of 4096 tokens, 2 threads (tokens per second)", longTable},
	{"adapters", "Decode of 16 sequences with low-rank adapters of rank 16, 2 threads (tokens per second)", adapterTable},
	{"tokenizer", "Tokenizers (MB/s, one thread)", tokenizerTable},
	{"window", "Batching windows: fixed and adaptive ones against an oracle", windowTable},
	{"busy", "Device use on the Azure trace at saturating load", busyTable},
	{"chunked", "Long prompts among decodes, with chunked prefill and without", chunkedTable},
	{"overload", "Goodput under overload, with admission and without", overloadTable},
	{"prefix", "Prefix cache by size, on the Mooncake trace", prefixTable},
	{"pool", "Where requests of the Mooncake trace go among eight servers", poolTable},
	{"decision", "The scheduler's own cost", decisionTable},
	{"cache", "The output tier of the cache", cacheTable},
	{"vectors-random", "Nearest of many vectors: random ones", randomVectorsTable},
	{"vectors-text", "Nearest of many vectors: sentences", textVectorsTable},
	{"threshold", "Collisions and true hits by the threshold of similarity", thresholdTable},
	{"jitter", "Hit rates under jitter of the entries' lives", jitterTable},
	{"gates", "Wrong and true hits of similarity alone, with gates and with an error budget", gatesTable},
	{"breaker", "What a breaker costs a call", breakerTable},
	{"proxy", "One token of another server's stream passed on (the proxy's CPU per token, HTTP/1.1 over loopback)", proxyTable},
	{"paced", "The same with one token at a time", pacedTable},
	{"chaos", "The main model killed, stalled, slow, failing and out of reach", chaosTable},
	{"http", "Tokens per second through the HTTP stream as a share of those inside the engine", httpTable},
}

// settings are the flags that tables look at.
type settings struct {
	rounds    int    // how often each variant is measured; medians are printed
	quick     bool   // smaller sizes, for a first look
	modelAt   string // where the synthetic model is kept between runs; empty for a temporary file
	plots     string // folder for SVG plots; empty for none
	azure     string // CSV file with arrivals
	texts     string // folder with pairs of sentences
	model2vec string // folder with a model of package model2vec
	faults    string // regular expression of the faults of the chaos table
	mooncake  string // JSON lines with the hashes of prompts' blocks
}

// plot draws a chart where plots are wanted.
func (s settings) plot(name string, c chart) error {
	if s.plots == "" {
		return nil
	}
	if err := os.MkdirAll(s.plots, 0o755); err != nil {
		return err
	}
	return c.write(filepath.Join(s.plots, name+".svg"))
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "client" {
		exit(clientMain(os.Args[2:]))
	}
	var s settings
	run := flag.String("run", ".", "`regexp` of the tables to print")
	flag.IntVar(&s.rounds, "rounds", 7, "measurements of each variant")
	flag.BoolVar(&s.quick, "quick", false, "smaller sizes, for a first look")
	flag.StringVar(&s.modelAt, "synthetic", "", "`file` to keep the synthetic model in between runs")
	flag.StringVar(&s.plots, "plots", "", "`folder` to write SVG plots to")
	flag.StringVar(&s.azure, "azure", "../shared/data/traces/azure_llm_conv.csv", "`file` with the Azure LLM inference trace")
	flag.StringVar(&s.mooncake, "mooncake", "../shared/data/traces/mooncake_conversation_trace.jsonl", "`file` with the Mooncake conversation trace")
	flag.StringVar(&s.texts, "texts", "../shared/data/text", "`folder` with the STS benchmark and GPTCache's pairs")
	flag.StringVar(&s.model2vec, "model2vec", "../shared/models/potion-base-4M-int8", "`folder` with a model2vec model")
	flag.StringVar(&s.faults, "faults", ".", "`regexp` of the faults in the chaos table")
	flag.Parse()
	selected, err := regexp.Compile(*run)
	exit(err)
	for _, t := range tables {
		if !selected.MatchString(t.name) {
			continue
		}
		fmt.Printf("\n## %s\n\n", t.title)
		exit(t.print(s))
	}
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if len(os.Args) > 1 && os.Args[1] == "client" {
		os.Exit(0)
	}
}
