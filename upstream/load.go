package upstream

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Load is what an engine says of its load beside an answer, in the form of Open
// Request Cost Aggregation (ORCA). A figure that it does not give is NaN.
type Load struct {
	// KVUse is the part of the KV cache in use, 0 to 1.
	KVUse float64
	// Queued and Running are numbers of requests.
	Queued, Running float64
	// Utilization is the engine's own measure of how busy it is, 0 to 1 and, for
	// some, above.
	Utilization float64
	// Named are all named metrics, under the names that they came with.
	Named map[string]float64
	// At is when the figures came.
	At time.Time
}

// observe hands on the load that a response's header tells of, which is that of
// now, and returns a function that does so for its trailer, to be called once its
// body has been read to the end.
func (e *Engine) observe(resp *http.Response) (trailer func()) {
	if e.opts.OnLoad == nil {
		return func() {}
	}
	tell := func(h http.Header) {
		if load, ok := parseLoad(h.Get(headerLoad)); ok {
			load.At = time.Now()
			e.opts.OnLoad(load)
		}
	}
	tell(resp.Header)
	return func() { tell(resp.Trailer) }
}

// loadJSON are the members of an ORCA report that matter here.
type loadJSON struct {
	Utilization *float64           `json:"application_utilization"`
	Named       map[string]float64 `json:"named_metrics"`
	NamedProto  map[string]float64 `json:"namedMetrics"`
	UtilProto   *float64           `json:"applicationUtilization"`
}

// parseLoad reads the header endpoint-load-metrics: "JSON {…}", "TEXT a=1,b=2",
// or either without its prefix.
func parseLoad(text string) (Load, bool) {
	if len(text) > 16<<10 {
		return Load{}, false
	}
	text = strings.TrimSpace(text)
	nan := math.NaN()
	l := Load{KVUse: nan, Queued: nan, Running: nan, Utilization: nan}
	form, rest, _ := strings.Cut(text, " ")
	switch {
	case strings.HasPrefix(text, "{"):
		return l, l.json(text)
	case equalFold(form, "JSON"):
		return l, l.json(rest)
	case equalFold(form, "TEXT"):
		return l, l.list(rest)
	default:
		return l, l.list(text)
	}
}

func (l *Load) json(text string) bool {
	var j loadJSON
	if json.Unmarshal([]byte(text), &j, jsontext.AllowDuplicateNames(true)) != nil {
		return false
	}
	l.Named = j.Named
	if l.Named == nil {
		l.Named = j.NamedProto
	}
	for _, u := range []*float64{j.Utilization, j.UtilProto} {
		if u != nil {
			l.Utilization = *u
		}
	}
	l.name()
	return true
}

func (l *Load) list(text string) bool {
	l.Named = make(map[string]float64)
	for pair := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		f, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil {
			continue
		}
		name = strings.TrimPrefix(name, "named_metrics.")
		if name == "application_utilization" {
			l.Utilization = f
			continue
		}
		l.Named[name] = f
	}
	l.name()
	return len(l.Named) > 0 || !math.IsNaN(l.Utilization)
}

// name finds the figures that have different names at different engines.
func (l *Load) name() {
	for name, value := range l.Named {
		if i := strings.LastIndexByte(name, ':'); i >= 0 {
			name = name[i+1:]
		}
		switch name {
		case "kv_cache_usage_perc", "gpu_cache_usage_perc", "token_usage", "kv_cache_utilization":
			l.KVUse = value
		case "num_requests_waiting", "num_queue_reqs":
			l.Queued = value
		case "num_requests_running", "num_running_reqs":
			l.Running = value
		}
	}
}
