package upstream

import (
	"math"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

const modelsBody = `{"object":"list","data":[
	{"id":"org/big","object":"model","created":1700000000,"owned_by":"vllm","max_model_len":4096},
	{"id":"adapter","object":"model","created":1700000001.5,"owned_by":"vllm","parent":"org/big"},
	{"id":"gguf","meta":{"n_ctx_train":512}}]}`

var listed = []haiku.ModelInfo{
	{ID: "org/big", OwnedBy: "vllm", Created: 1700000000, ContextTokens: 4096},
	{ID: "adapter", OwnedBy: "vllm", Created: 1700000001, Parent: "org/big"},
	{ID: "gguf", ContextTokens: 512},
}

func TestModelsNeverWaitForTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var up atomic.Bool
		var calls atomic.Int32
		up.Store(true)
		e, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			if !up.Load() {
				hang(w, r)
				return
			}
			failing(200, modelsBody)(w, r)
		}, Options{ModelsTTL: time.Minute})
		require.Empty(t, e.Models(), "none is known yet")
		synctest.Wait()
		require.Equal(t, listed, e.Models())
		require.EqualValues(t, 1, calls.Load())

		up.Store(false)
		soon(2 * time.Minute)
		began := time.Now()
		for range 10 {
			require.Equal(t, listed, e.Models(), "the old list, while a new one is asked for")
		}
		require.Zero(t, time.Since(began))
		synctest.Wait()
		require.EqualValues(t, 2, calls.Load(), "once at a time")
		soon(9 * time.Minute)
		require.Empty(t, e.Models(), "a list that is too old is not shown")
		up.Store(true)
		require.NoError(t, e.Refresh(t.Context()))
		require.Equal(t, listed, e.Models())
	})
}

func TestANamedEngineListsItsOwnModel(t *testing.T) {
	e, _ := serve(t, failing(200, modelsBody), Options{Name: "small", Model: "org/big"})
	require.Equal(t, []haiku.ModelInfo{{ID: "small"}}, e.configured())
	require.NoError(t, e.Refresh(t.Context()))
	require.Equal(t, []haiku.ModelInfo{
		{ID: "small", OwnedBy: "vllm", Created: 1700000000, ContextTokens: 4096},
		{ID: "adapter", OwnedBy: "vllm", Created: 1700000001, Parent: "small"},
	}, e.Models())
	e, _ = serve(t, failing(200, modelsBody), Options{Model: "gone"})
	require.NoError(t, e.Refresh(t.Context()))
	require.Equal(t, []haiku.ModelInfo{{ID: "gone"}}, e.Models())
}

func TestAnAdapterKeepsItsNameBehindANamedModel(t *testing.T) {
	asked := make(chan string, 1)
	e, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			failing(200, modelsBody)(w, r)
			return
		}
		var body struct {
			Model string `json:"model"`
		}
		_ = json.UnmarshalRead(r.Body, &body)
		asked <- body.Model
		events(plain...)(w, r)
	}, Options{Name: "small", Model: "org/big"})
	require.NoError(t, e.Refresh(t.Context()))
	for name, want := range map[string][2]string{"": {"org/big", "small"}, "small": {"org/big", "small"}, "adapter": {"adapter", "adapter"}} {
		req := hello()
		req.Model = name
		stream := haiku.NewStream(t.Context(), e, req)
		_, err := stream.Text()
		require.NoError(t, err)
		require.Equal(t, want, [2]string{<-asked, stream.Model()}, name)
	}
}

func TestRefreshTellsWhatIsWrong(t *testing.T) {
	for want, h := range map[error]http.HandlerFunc{
		ErrMalformed: failing(200, `{"data":`), ErrCredentials: failing(403, ""), haiku.ErrOverloaded: failing(503, ""),
	} {
		e, _ := serve(t, h, Options{})
		require.ErrorIs(t, e.Refresh(t.Context()), want)
	}
}

func TestCloseEndsWhatIsAskedBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := serve(t, hang, Options{})
		e.Models()
		synctest.Wait()
		began := time.Now()
		require.NoError(t, e.Close())
		require.Zero(t, time.Since(began))
		e.Models() // and asks for nothing
	})
}

func TestTheLoadIsHandedOn(t *testing.T) {
	var got []Load
	header := "endpoint-load-metrics"
	for _, h := range []http.HandlerFunc{
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(header, `JSON {"named_metrics":{"kv_cache_usage_perc":0.4,"num_requests_waiting":3}}`)
			events(plain...)(w, r)
		},
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(header, "TEXT named_metrics.sglang:token_usage=0.5, named_metrics.num_running_reqs=2,application_utilization=0.9")
			failing(503, busyBody)(w, r)
		},
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", header)
			w.Header().Set(header, "in the trailer")
			w.Header().Del(header)
			events(plain...)(w, r)
			w.Header().Set(header, `{"application_utilization":1.5}`)
		},
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(header, "JSON {")
			events(plain...)(w, r)
		},
	} {
		e, _ := serve(t, h, Options{OnLoad: func(l Load) { got = append(got, l) }, Retry: Retry{Attempts: 1}})
		ask(t.Context(), e, hello())
	}
	require.Len(t, got, 3)
	require.Equal(t, []float64{0.4, 3}, []float64{got[0].KVUse, got[0].Queued})
	require.True(t, math.IsNaN(got[0].Running) && math.IsNaN(got[0].Utilization))
	require.Equal(t, []float64{0.5, 2, 0.9}, []float64{got[1].KVUse, got[1].Running, got[1].Utilization})
	require.Equal(t, 1.5, got[2].Utilization)
	require.NotZero(t, got[0].At)
}

// TestAHeadersLoadIsToldWhenItComes keeps the answer going until the load of its
// header has been told: at the end of a long one it would be old.
func TestAHeadersLoadIsToldWhenItComes(t *testing.T) {
	told := make(chan Load, 2)
	e, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", headerLoad)
		w.Header().Set(headerLoad, "TEXT num_requests_waiting=3")
		_ = http.NewResponseController(w).Flush()
		select {
		case l := <-told:
			require.Equal(t, 3.0, l.Queued)
			w.Header().Set(headerLoad, "TEXT num_requests_waiting=4")
		case <-time.After(5 * time.Second):
		}
		events(plain...)(w, r)
	}, Options{OnLoad: func(l Load) { told <- l }, Retry: Retry{Attempts: 1}})
	ask(t.Context(), e, hello())
	require.Equal(t, 4.0, (<-told).Queued, "and that of a trailer at the end")
}
