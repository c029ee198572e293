package haiku_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// handled runs h and returns the response and what was logged.
func handled(h haiku.HandlerFunc) (*httptest.ResponseRecorder, string) {
	var log bytes.Buffer
	mux := haiku.New()
	mux.Register("/", h, haiku.Logging(slog.New(slog.NewTextHandler(&log, nil))))
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, httptest.NewRequest("GET", "/the/path", nil))
	return rec, log.String()
}

func TestAbortWithStatus(t *testing.T) {
	for _, tt := range []struct {
		code int
		want int
		body string
	}{
		{403, 403, `{"error":{"message":"access is denied","type":"permission_error","param":null,"code":"forbidden"}}`},
		{404, 404, notFoundBody},
		{418, 418, `{"error":{"message":"I'm a teapot","type":"invalid_request_error","param":null,"code":null}}`},
		{429, 429, `{"error":{"message":"too many requests","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`},
		{500, 500, internalBody},
		{503, 503, overloadedBody},
		{507, 507, `{"error":{"message":"Insufficient Storage","type":"server_error","param":null,"code":null}}`},
		{599, 599, `{"error":{"message":"status 599","type":"server_error","param":null,"code":null}}`},
		{204, 204, ""},
		{304, 304, ""},
		{0, 500, `{"error":{"message":"status 0","type":"invalid_request_error","param":null,"code":null}}`},
		{100, 500, `{"error":{"message":"Continue","type":"invalid_request_error","param":null,"code":null}}`},
		{1000, 500, `{"error":{"message":"status 1000","type":"server_error","param":null,"code":null}}`},
	} {
		rec, log := handled(func(c *haiku.Context) {
			require.False(t, c.IsAborted())
			c.AbortWithStatus(tt.code)
			require.True(t, c.IsAborted())
			c.AbortWithStatus(400) // the first counts
		})
		require.Equal(t, tt.want, rec.Code, tt.code)
		require.Equal(t, tt.body, rec.Body.String())
		require.Empty(t, log)
	}
}

func TestAbortWithError(t *testing.T) {
	rec, log := handled(func(c *haiku.Context) {
		c.AbortWithError(errors.New("dial tcp 10.0.0.7: refused"))
		c.AbortWithError(errors.New("and again"))
	})
	require.Equal(t, internalBody, rec.Body.String())
	require.Contains(t, log, `path=/the/path error="dial tcp 10.0.0.7: refused"`, "the operator is told what the client is not")
	require.NotContains(t, log, "again")

	rec, log = handled(func(c *haiku.Context) {
		limited := haiku.ErrRateLimited.With("", "slow down").Because(errors.New("bucket empty"))
		limited.RetryAfter = 1100 * time.Millisecond
		c.AbortWithError(limited)
	})
	require.Equal(t, 429, rec.Code)
	require.Equal(t, []string{"2"}, rec.Header()["Retry-After"])
	require.Equal(t, []string{"1100"}, rec.Header()["Retry-After-Ms"])
	require.Empty(t, log, "a client's fault is no news")

	rec, _ = handled(func(c *haiku.Context) {
		c.Writer.WriteHeader(202)
		c.AbortWithError(haiku.ErrOverloaded)
		require.True(t, c.IsAborted())
	})
	require.Equal(t, 202, rec.Code)
	require.Empty(t, rec.Body.String())

	rec, _ = handled(func(c *haiku.Context) {
		c.Writer.WriteHeader(http.StatusEarlyHints) // not an answer yet
		c.AbortWithStatus(403)
	})
	require.Equal(t, `{"error":{"message":"access is denied","type":"permission_error","param":null,"code":"forbidden"}}`, rec.Body.String())

	rec, _ = handled(func(c *haiku.Context) {
		c.AbortWithError(nil)
		c.AbortWithError(haiku.ErrOverloaded)
	})
	require.Empty(t, rec.Body.String(), "aborted before, with nothing to say")
}

func TestJSON(t *testing.T) {
	rec, _ := handled(func(c *haiku.Context) {
		require.NoError(t, c.JSON(201, map[string]any{"b": "<&>", "a": []int{}}))
	})
	require.Equal(t, 201, rec.Code)
	require.JSONEq(t, `{"a":[],"b":"<&>"}`, rec.Body.String())
	require.Equal(t, http.Header{"Content-Type": {"application/json"}, "Content-Length": {"18"}}, rec.Header())

	rec, log := handled(func(c *haiku.Context) {
		require.ErrorIs(t, c.JSON(200, func() {}), haiku.ErrInternal)
	})
	require.Equal(t, 500, rec.Code)
	require.Equal(t, internalBody, rec.Body.String())
	require.NotEmpty(t, log)
}

func TestValues(t *testing.T) {
	type key struct{ name string }
	handled(func(c *haiku.Context) {
		c.Request = c.Request.WithContext(context.WithValue(c.Context(), key{"ctx"}, 1))
		require.Equal(t, 1, c.Value(key{"ctx"}))
		require.Nil(t, c.Value(key{"none"}))
		c.Set(key{"ctx"}, 2)
		c.Set(key{"own"}, 3)
		require.Equal(t, []any{2, 3}, []any{c.Value(key{"ctx"}), c.Value(key{"own"})})
		c.Set(key{"own"}, nil)
		require.Nil(t, c.Value(key{"own"}))
		require.Equal(t, 1, c.Context().Value(key{"ctx"}), "Set does not reach the request's context")

		require.Equal(t, haiku.Identity{}, c.Identity())
		id := haiku.Identity{Subject: "s", Tenant: "t"}
		c.SetIdentity(id)
		require.Equal(t, id, c.Identity())
		require.Equal(t, id, haiku.IdentityFrom(c.Context()))
	})
}
