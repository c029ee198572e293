package openai

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

type lister struct {
	haiku.Model
	list []haiku.ModelInfo
}

func (l lister) Models() []haiku.ModelInfo { return l.list }

func TestModelsAreListedAndFound(t *testing.T) {
	h := Handler(lister{scripted(nil), []haiku.ModelInfo{
		{ID: "base", OwnedBy: "me", Created: 7, ContextTokens: 256}, {ID: "org/adapter", Parent: "base", OwnedBy: "me"},
	}})
	get := func(method, path string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w.Code, w.Body.String()
	}
	for _, c := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/v1/models", 200, `{"object":"list","data":[{"id":"base","object":"model","created":7,"owned_by":"me","max_model_len":256},{"id":"org/adapter","object":"model","created":0,"owned_by":"me","parent":"base"}]}`},
		{"GET", "/v1/models/org/adapter", 200, `{"id":"org/adapter","object":"model","created":0,"owned_by":"me","parent":"base"}`},
		{"GET", "/v1/models/org%2Fadapter", 200, `{"id":"org/adapter","object":"model","created":0,"owned_by":"me","parent":"base"}`},
		{"GET", "/v1/models/org", 404, `{"error":{"message":"the model \"org\" does not exist","type":"invalid_request_error","param":"model","code":"model_not_found"}}`},
		{"GET", "/v1/models/" + strings.Repeat("%E2%82%AC", 50), 404, `{"error":{"message":"the model \"` + strings.Repeat("€", 21) + `…\" does not exist","type":"invalid_request_error","param":"model","code":"model_not_found"}}`},
		{"GET", "/v1/models/gone", 404, `{"error":{"message":"the model \"gone\" does not exist","type":"invalid_request_error","param":"model","code":"model_not_found"}}`},
		{"GET", chatPath, 405, `{"error":{"message":"the method is not allowed here","type":"invalid_request_error","param":null,"code":"method_not_allowed"}}`},
		{"GET", "/v1/nothing", 404, `{"error":{"message":"there is nothing at this address","type":"invalid_request_error","param":null,"code":"not_found"}}`},
	} {
		status, body := get(c.method, c.path)
		require.Equal(t, c.status, status, c.path)
		require.Equal(t, c.body, body, c.path)
	}
	w := httptest.NewRecorder()
	Handler(scripted(nil)).ServeHTTP(w, httptest.NewRequest("GET", "/v1/models", nil))
	require.Equal(t, `{"object":"list","data":[]}`, w.Body.String(), "a model that knows no names")
	require.Equal(t, http.StatusOK, w.Code)
}

func TestMethodsThatAreNotServed(t *testing.T) {
	h := Handler(scripted(nil, stop(0)))
	for _, c := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"OPTIONS", chatPath, 405, "POST"}, {"HEAD", chatPath, 405, "POST"}, {"PUT", completionPath, 405, "POST"},
		{"POST", "/v1/models", 405, "GET, HEAD"}, {"DELETE", "/v1/models/x", 405, "GET, HEAD"},
		{"HEAD", "/v1/models", 200, ""}, {"HEAD", "/v1/models/x", 404, ""},
		{"GET", "/v1/embeddings", 405, "POST"}, {"POST", "/v1/responses", 404, ""}, {"POST", "/v1/chat/completions/", 404, ""},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		require.Equal(t, c.status, w.Code, "%s %s", c.method, c.path)
		require.Equal(t, c.allow, w.Header().Get("Allow"), "%s %s", c.method, c.path)
		require.Equal(t, "application/json", w.Header().Get("Content-Type"), "%s %s", c.method, c.path)
	}
}

func TestTheContentTypeIsJSONOrNotSaid(t *testing.T) {
	h := Handler(scripted(nil, say(0, "a"), stop(0)))
	for kind, status := range map[string]int{
		"": 200, "application/json": 200, "Application/JSON; charset=utf-8": 200, "application/vnd.api+json": 200,
		"text/plain": 415, "application/x-www-form-urlencoded": 415, "multipart/form-data; boundary=x": 415, ";;": 415,
	} {
		for _, path := range []string{chatPath, completionPath} {
			r := httptest.NewRequest("POST", path, strings.NewReader(`{"prompt":"x",`+hi+`}`))
			r.Header.Set("Content-Type", kind)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, status, w.Code, "%q %s", kind, w.Body)
		}
	}
}

// A host that mounts the handlers itself gives the model by middleware.
func TestTheHandlersOfAHost(t *testing.T) {
	mux := haiku.New()
	provide := haiku.Provide(scripted(nil, say(0, "a"), stop(0)))
	mux.Register("POST /chat", ChatCompletions(), provide)
	mux.Register("POST /complete", Completions(), provide)
	mux.Register("GET /models", Models())
	mux.Register("POST /bare", ChatCompletions(), haiku.Logging(quiet))
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/chat", `{` + hi + `}`, 200, `"content":"a"`},
		{"POST", "/complete", `{"prompt":"x"}`, 200, `"text":"a"`},
		{"GET", "/models", "", 200, `{"object":"list","data":[]}`},
		{"POST", "/bare", `{` + hi + `}`, 500, `"message":"this route has no model"`},
		{"POST", "/bare", `{"messages":[]}`, 400, `"param":"messages"`},
	} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(c.method, c.path, strings.NewReader(c.body)))
		require.Equal(t, c.status, w.Code, c.path)
		require.Contains(t, w.Body.String(), c.want, c.path)
	}
}

func TestMiddlewareStandsBeforeEveryRoute(t *testing.T) {
	refuse := func(haiku.InferenceHandler) haiku.InferenceHandler {
		return haiku.HandlerFunc(func(c *haiku.Context) { c.AbortWithStatus(http.StatusForbidden) })
	}
	h := Handler(scripted(nil, stop(0)), refuse)
	for path, method := range map[string]string{chatPath: "POST", completionPath: "POST", "/v1/models": "GET", "/v1/models/x": "GET"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader("{")))
		require.Equal(t, http.StatusForbidden, w.Code, path)
	}
}
