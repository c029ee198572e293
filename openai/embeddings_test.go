package openai

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

const embeddingsPath = "/v1/embeddings"

// embedder is a model that embeds inputs as their number and length.
type embedder struct {
	haiku.Model
	got *haiku.EmbeddingRequest
	err error
}

func (e *embedder) Embed(_ context.Context, req *haiku.EmbeddingRequest) (*haiku.Embeddings, error) {
	if e.err != nil {
		return nil, e.err
	}
	e.got = req
	out := &haiku.Embeddings{Model: "frog-embed", Usage: haiku.Usage{PromptTokens: 7}}
	for i, in := range req.Inputs {
		out.Vectors = append(out.Vectors, []float32{float32(i), float32(len(in.Text) + len(in.Tokens)), -0.5})
	}
	return out, nil
}

func TestEmbeddingsByteForByte(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{`{"model":"m","input":"frog"}`, `[{"object":"embedding","index":0,"embedding":[0,4,-0.5]}]`},
		{`{"input":["a","bc"],"encoding_format":"float"}`, `[{"object":"embedding","index":0,"embedding":[0,1,-0.5]},{"object":"embedding","index":1,"embedding":[1,2,-0.5]}]`},
		{`{"input":[5,6,7],"user":"u"}`, `[{"object":"embedding","index":0,"embedding":[0,3,-0.5]}]`},
		{`{"input":[[5],[6,7]],"encoding_format":"base64"}`, `[{"object":"embedding","index":0,"embedding":"AAAAAAAAgD8AAAC/"},{"object":"embedding","index":1,"embedding":"AACAPwAAAEAAAAC/"}]`},
	} {
		status, body := post(t, &embedder{Model: scripted(nil)}, embeddingsPath, c.body)
		require.Equal(t, 200, status, body)
		require.Equal(t, `{"object":"list","data":`+c.want+`,"model":"frog-embed","usage":{"prompt_tokens":7,"total_tokens":7}}`, body)
	}
}

func TestAnEmbeddingsRequestIsTranslatedInFull(t *testing.T) {
	e := &embedder{Model: scripted(nil)}
	status, body := post(t, e, embeddingsPath, `{"model":"m","input":["a",[3]],"dimensions":3}`)
	require.Equal(t, 200, status, body)
	require.Equal(t, &haiku.EmbeddingRequest{Model: "m", Dimensions: 3, Inputs: []haiku.EmbeddingInput{{Text: "a"}, {Tokens: []int32{3}}}}, e.got)
}

func TestBadEmbeddingsRequestsNameTheField(t *testing.T) {
	for _, c := range []struct{ body, param string }{
		{`{}`, "input"}, {`{"input":null}`, "input"}, {`{"input":[]}`, "input"}, {`{"input":""}`, "input"}, {`{"input":7}`, "input"}, {`{"input":{}}`, "input"},
		{`{"input":["a",""]}`, "input[1]"}, {`{"input":[[1],[]]}`, "input[1]"}, {`{"input":["a",7]}`, "input"}, {`{"input":[1,"a"]}`, "input"},
		{`{"input":[1.5]}`, "input"}, {`{"input":[-1]}`, "input"}, {`{"input":[[1],[-1]]}`, "input[1]"}, {`{"input":[9999999999]}`, "input"}, {`{"input":[[[1]]]}`, "input"},
		{`{"input":[` + strings.Repeat(`"a",`, maxInputs) + `"a"]}`, "input"},
		{`{"input":"a","encoding_format":"hex"}`, "encoding_format"},
		{`{"input":"a","dimensions":0}`, "dimensions"}, {`{"input":"a","dimensions":-1}`, "dimensions"}, {`{"input":"a","dimensions":1.5}`, "dimensions"},
		{`{"input":"a","model":7}`, "model"}, {`{"input":"a","input":"b"}`, "input"},
	} {
		status, body := post(t, &embedder{Model: scripted(nil)}, embeddingsPath, c.body)
		require.Equal(t, 400, status, "%.60s: %s", c.body, body)
		var answer struct {
			Error struct {
				Param string `json:"param"`
			} `json:"error"`
		}
		require.NoError(t, json.Unmarshal([]byte(body), &answer), body)
		require.Equal(t, c.param, answer.Error.Param, "%.60s: %s", c.body, body)
	}
}

func TestEmbeddingErrorsKeepTheirStatus(t *testing.T) {
	status, body := post(t, scripted(nil), embeddingsPath, `{"input":"a"}`)
	require.Equal(t, 400, status)
	require.Contains(t, body, "this model makes no embeddings")
	status, body = post(t, &embedder{err: haiku.ModelNotFound("x")}, embeddingsPath, `{"input":"a"}`)
	require.Equal(t, 404, status)
	require.Contains(t, body, `"code":"model_not_found"`)
	mux := haiku.New()
	mux.Register("POST /e", Embeddings(), haiku.Logging(quiet))
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("POST", "/e", strings.NewReader(`{"input":"a"}`)))
	require.Equal(t, 500, w.Code)
}

func FuzzEmbeddingsRequest(f *testing.F) {
	for _, s := range []string{`{"input":"a"}`, `{"input":["a","b"],"dimensions":3}`, `{"input":[1,2]}`, `{"input":[[1],[2]],"encoding_format":"base64"}`, `{"input":[]}`} {
		f.Add(s)
	}
	e := &embedder{Model: scripted(nil)}
	f.Fuzz(func(t *testing.T, body string) {
		e.got = nil
		status, text := post(t, e, embeddingsPath, body)
		if status != 200 {
			require.Contains(t, []int{400, 413, 415}, status, text)
			return
		}
		require.NotEmpty(t, e.got.Inputs)
		require.LessOrEqual(t, len(e.got.Inputs), maxInputs)
		for _, in := range e.got.Inputs {
			require.True(t, in.Text != "" || len(in.Tokens) > 0)
		}
	})
}
