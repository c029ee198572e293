package cache

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// overHTTP returns a way to ask a question of c on a route with a control; the
// headers are names and values in turn.
func overHTTP(t *testing.T, c *Cached, route Control) func(question string, headers ...string) *httptest.ResponseRecorder {
	mux := haiku.New()
	mux.Use(haiku.Provide(c), route.Middleware())
	mux.Register("/", haiku.HandlerFunc(func(ctx *haiku.Context) {
		m, _ := haiku.ModelFrom(ctx.Context())
		_ = ctx.Stream(haiku.NewStream(ctx.Context(), m, ask(ctx.Request.URL.Query().Get("q"))))
	}))
	return func(question string, headers ...string) *httptest.ResponseRecorder {
		t.Helper()
		req := httptest.NewRequest(http.MethodPost, "/?q="+url.QueryEscape(question), nil)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, req)
		return rec
	}
}

// cacheOf is what a response says the cache did.
func cacheOf(rec *httptest.ResponseRecorder) string { return rec.Header().Get("X-Haiku-Cache") }

func TestAHeaderTellsAnAnswerToASimilarQuestion(t *testing.T) {
	c, m := semantic(t, Semantic{Embedder: letters{}, Gate: sameNegation})
	post := overHTTP(t, c, Control{})
	first := post("where is the pond")
	require.Equal(t, "miss", cacheOf(first))
	rec := post("the pond is where")
	require.Equal(t, "semantic", cacheOf(rec))
	require.NotEmpty(t, rec.Header().Get("X-Haiku-Cache-Age"))
	require.Equal(t, first.Body.String(), rec.Body.String())
	require.Equal(t, "hit", cacheOf(post("where is the pond")))
	require.Equal(t, "miss", cacheOf(post("the pond is not where")))
	require.Equal(t, int64(2), m.runs.Load())
}

func TestAClientsNamespaceIsApart(t *testing.T) {
	const header = "x-haiku-cache-namespace"
	c, m := semantic(t, Semantic{Embedder: letters{}, Gate: sameNegation})
	post := overHTTP(t, c, Control{Namespace: "route"})
	require.Equal(t, "miss", cacheOf(post("where is the pond", header, "a")))
	require.Equal(t, "hit", cacheOf(post("where is the pond", header, "a")))
	require.Equal(t, "semantic", cacheOf(post("the pond is where", header, "a")))
	require.Equal(t, "miss", cacheOf(post("where is the pond", header, "b")))
	require.Equal(t, "miss", cacheOf(post("where is the pond")), "without one it is the route's own")
	require.Equal(t, "hit", cacheOf(post("where is the pond")))
	require.Equal(t, "miss", cacheOf(overHTTP(t, c, Control{})("where is the pond", header, "a")), "another route's")
	require.Equal(t, "miss", cacheOf(overHTTP(t, c, Control{Namespace: "routea"})("where is the pond")), "a route by the two names in one")
	require.Equal(t, int64(5), m.runs.Load())
}

func TestAClientsNamespaceIsBounded(t *testing.T) {
	const header = "x-haiku-cache-namespace"
	m := &model{}
	c := Through(m, tiers(t, Options{}), Policy{})
	defer c.Close()
	post := overHTTP(t, c, Control{Namespace: strings.Repeat("the route's own counts for nothing ", 10)})
	require.Equal(t, "miss", cacheOf(post("old pond", header, strings.Repeat("n", 128))))
	rec := post("old pond", header, strings.Repeat("n", 129))
	require.Equal(t, 400, rec.Code)
	require.Contains(t, rec.Body.String(), header)
	require.Contains(t, rec.Body.String(), "128 bytes")
	require.Equal(t, int64(1), m.runs.Load())
}

func TestNothingIsKeptOfWhatAClientWantsNotStored(t *testing.T) {
	c, m := semantic(t, Semantic{Embedder: letters{}, Gate: sameNegation})
	post := overHTTP(t, c, Control{})
	noStore := []string{"Cache-Control", "no-store"}
	require.Equal(t, "miss", cacheOf(post("where is the pond", noStore...)))
	require.Equal(t, "miss", cacheOf(post("where is the pond", noStore...)))
	require.Equal(t, "miss", cacheOf(post("the pond is where")), "in no tier")
	require.Equal(t, "hit", cacheOf(post("the pond is where", noStore...)), "what others left may be read")
	require.Equal(t, "semantic", cacheOf(post("where is the pond", noStore...)))
	require.Equal(t, int64(3), m.runs.Load())
}
