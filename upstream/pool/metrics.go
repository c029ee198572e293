package pool

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/fallback"
)

// names are how servers call what Load holds, in the text format of Prometheus.
var names = map[string]func(*Load, float64){
	"vllm:num_requests_waiting":     addQueued,
	"sglang:num_queue_reqs":         addQueued,
	"llamacpp:requests_deferred":    addQueued,
	"vllm:num_requests_running":     addRunning,
	"sglang:num_running_reqs":       addRunning,
	"llamacpp:requests_processing":  addRunning,
	"vllm:kv_cache_usage_perc":      setKV, // a share, despite its name
	"vllm:gpu_cache_usage_perc":     setKV, // before v0.10
	"sglang:token_usage":            setKV,
	"llamacpp:kv_cache_usage_ratio": setKV,
}

func addQueued(l *Load, v float64)  { l.Queued = max(l.Queued, 0) + int(min(v, maxCount)) }
func addRunning(l *Load, v float64) { l.Running = max(l.Running, 0) + int(min(v, maxCount)) }
func setKV(l *Load, v float64)      { l.KV = max(l.KV, min(v, 1)) }

// maxMetricsBytes bounds what is read of a server's metrics.
const maxMetricsBytes = 4 << 20

// Metrics returns a function that asks a server for its load at url, such as
// http://host:8000/metrics. It knows the names of vLLM, SGLang and llama.cpp.
// Counts of several models or engines of one server add up; of KV memory the
// fullest counts.
func Metrics(client *http.Client, url string) func(context.Context) (Load, error) {
	return func(ctx context.Context) (Load, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return Load{}, fmt.Errorf("pool: metrics: %w", err)
		}
		resp, err := client.Do(req)
		if err != nil {
			return Load{}, fmt.Errorf("pool: metrics: %w", err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return Load{}, fmt.Errorf("pool: metrics: %s", resp.Status)
		}
		return parseMetrics(io.LimitReader(resp.Body, maxMetricsBytes))
	}
}

// parseMetrics reads the text format of Prometheus, as far as Load goes.
func parseMetrics(r io.Reader) (Load, error) {
	load := Load{Queued: -1, Running: -1, KV: -1}
	known, newest := false, -1.0
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, ok := sample(lines.Text())
		if !ok {
			continue
		}
		if set := names[name]; set != nil {
			set(&load, value)
			known = true
		}
		if name == "vllm:lora_requests_info" && value > newest { // of when it held; old ones stay
			newest = value
			adapters(&load, lines.Text())
		}
	}
	if err := lines.Err(); err != nil {
		return Load{}, fmt.Errorf("pool: metrics: %w", err)
	}
	if !known {
		return Load{}, fmt.Errorf("pool: metrics: none of a server that is known")
	}
	return load, nil
}

// sample reads one line: a name, labels perhaps, and a value that is a number of
// at least 0.
func sample(line string) (name string, value float64, ok bool) {
	end := strings.IndexAny(line, "{ ")
	if end <= 0 || line[0] == '#' {
		return "", 0, false
	}
	rest := line[end:]
	if rest[0] == '{' {
		rest = rest[closing(rest):]
	}
	number, _, _ := strings.Cut(strings.TrimLeft(rest, "} "), " ")
	value, err := strconv.ParseFloat(number, 64)
	return line[:end], value, err == nil && value >= 0 && value < 1e15
}

// closing is where labels end; a brace inside quotes is none.
func closing(labels string) int {
	quoted := false
	for i := 0; i < len(labels); i++ {
		switch c := labels[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '}' && !quoted:
			return i
		}
	}
	return len(labels)
}

// adapters reads vLLM's list of adapters, which is in labels: the names of those
// running and waiting, separated by commas, and how many may run at once.
func adapters(l *Load, line string) {
	l.Adapters = make(map[string]Adapter)
	list := func(label string, place Adapter) {
		for name := range strings.SplitSeq(labelOf(line, label), ",") {
			if name = strings.TrimSpace(name); name != "" && l.Adapters[name] < place {
				l.Adapters[name] = place
			}
		}
	}
	list("waiting_lora_adapters", Waiting)
	list("running_lora_adapters", Active)
	if most, err := strconv.Atoi(labelOf(line, "max_lora")); err == nil {
		l.AdapterRoom = len(l.Adapters) < most
	}
}

func labelOf(line, label string) string {
	_, rest, ok := strings.Cut(line, label+`="`)
	if !ok {
		return ""
	}
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// Healthy returns a probe that asks a server for url, such as
// http://host:8000/health, and takes any status below 300 for yes.
func Healthy(client *http.Client, url string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("pool: probe: %w", err)
		}
		resp, err := client.Do(req)
		if err != nil {
			return fmt.Errorf("pool: probe: %w", err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16)) // so that the connection is used again
		if resp.StatusCode >= 300 {
			return fmt.Errorf("pool: probe: %s", resp.Status)
		}
		return nil
	}
}

// Answers returns a probe that has a model answer with one token, as any request
// would: a health check may be well where nothing is computed any more. A server
// that is too busy for it is there. It waits in the server's queue like others, so
// Options.Probe should be longer than that may take.
func Answers(m haiku.Model) func(context.Context) error {
	return func(ctx context.Context) error {
		stream := haiku.NewStream(ctx, m, &haiku.Request{Messages: []haiku.Message{{Role: haiku.RoleUser, Content: "Hi"}}, MaxTokens: 1})
		_, err := stream.Text()
		if err == nil || fallback.OutcomeOf(ctx, err, false).Class == fallback.Rejected {
			return nil
		}
		return fmt.Errorf("pool: probe: %w", err)
	}
}
