package pool

import (
	"context"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/upstream"
)

func TestMetricsOfKnownServers(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want Load
	}{
		"vLLM": {`# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m{\"}x"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0 1700000000000
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:lora_requests_info{max_lora="3",running_lora_adapters="old",waiting_lora_adapters=""} 1.0e+09
vllm:lora_requests_info{max_lora="3",running_lora_adapters="law,cooking",waiting_lora_adapters="law, poems"} 1.7e+09
vllm:lora_requests_info{max_lora="3",running_lora_adapters="older",waiting_lora_adapters=""} 1.2e+09
`, Load{Queued: 2, Running: 3, KV: 0.25, Adapters: map[string]Adapter{"law": Active, "cooking": Active, "poems": Waiting}}},
		"two engines": {"vllm:num_requests_running{engine=\"0\"} 3\nvllm:num_requests_running{engine=\"1\"} 4\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.5\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.1\n",
			Load{Queued: -1, Running: 7, KV: 0.5}},
		"SGLang":    {"sglang:num_running_reqs{model_name=\"m\"} 1.0\nsglang:num_queue_reqs 4\nsglang:token_usage 0.9\r\n", Load{Queued: 4, Running: 1, KV: 0.9}},
		"llama.cpp": {"llamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n", Load{Queued: 1, Running: 2, KV: -1}},
		"odd lines": {"{}\n \nvllm:num_requests_running\nvllm:num_requests_running NaN\nvllm:num_requests_running -1\nvllm:num_requests_running{a=\"}\nvllm:num_requests_running +Inf\nvllm:num_requests_running 5", Load{Queued: -1, Running: 5, KV: -1}},
	} {
		got, err := parseMetrics(strings.NewReader(c.text))
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
	for _, text := range []string{"", "# nothing\n", "other_metric 3\n", strings.Repeat("x", 2<<20)} {
		_, err := parseMetrics(strings.NewReader(text))
		require.Error(t, err)
	}
}

func TestMetricsAreAskedOfAServer(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte("vllm:num_requests_waiting 2\n"))
	}))
	defer server.Close()
	defer server.Client().CloseIdleConnections()
	ask := Metrics(server.Client(), server.URL+"/metrics")
	got, err := ask(t.Context())
	require.NoError(t, err)
	require.Equal(t, Load{Queued: 2, Running: -1, KV: -1}, got)
	status = http.StatusNotFound
	_, err = ask(t.Context())
	require.Error(t, err)
	_, err = Metrics(server.Client(), ":bad")(t.Context())
	require.Error(t, err)
}

func TestAProbeWantsAGoodStatus(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer server.Close()
	defer server.Client().CloseIdleConnections()
	probe := Healthy(server.Client(), server.URL)
	require.NoError(t, probe(t.Context()))
	status = http.StatusServiceUnavailable
	require.Error(t, probe(t.Context()))
	server.Close()
	require.Error(t, probe(t.Context()))
	require.Error(t, Healthy(server.Client(), ":bad")(t.Context()))
}

func TestARealProbeWantsAToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		within := func() error {
			ctx, cancel := context.WithTimeout(haiku.WithLogger(t.Context(), slog.New(slog.DiscardHandler)), time.Second)
			defer cancel()
			return Answers(s)(ctx)
		}
		require.NoError(t, within())
		s.fail = haiku.ErrTooBusy
		require.NoError(t, within(), "it is there")
		s.fail = errBroken
		require.ErrorIs(t, within(), errBroken)
		s.fail, s.step = nil, time.Hour
		require.ErrorIs(t, within(), context.DeadlineExceeded)
	})
}

func FuzzMetrics(f *testing.F) {
	f.Add("vllm:num_requests_running{a=\"}\\\"\"} 3\nvllm:lora_requests_info{max_lora=\"1\",running_lora_adapters=\"a\"} 1\n")
	f.Add("sglang:token_usage 0.5")
	f.Fuzz(func(t *testing.T, text string) {
		load, err := parseMetrics(strings.NewReader(text))
		if err == nil && (load.Queued < -1 || load.Running < -1 || !(load.KV >= -1 && load.KV <= 1)) {
			t.Fatalf("%+v", load)
		}
	})
}

func TestWhatAnEngineDoesNotTellIsNotTold(t *testing.T) {
	nan := math.NaN()
	require.Equal(t, Load{Queued: -1, Running: -1, KV: -1}, Told(upstream.Load{Queued: nan, Running: nan, KVUse: nan}))
	require.Equal(t, Load{Queued: 3, Running: 1 << 30, KV: 1}, Told(upstream.Load{Queued: 3, Running: math.Inf(1), KVUse: 7}).sane())
	require.Equal(t, Load{Queued: -1, Running: -1, KV: 0.5}, Told(upstream.Load{Queued: -1, Running: nan, KVUse: 0.5}))
}
