package haiku_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

func TestObjectivesComeFromTheRouteOrItsHeaders(t *testing.T) {
	urgent, batch := haiku.Objective{Priority: -1, TTFT: 200 * time.Millisecond}, haiku.Objective{Priority: 5}
	route := haiku.Objectives{
		Default: haiku.Objective{TTFT: time.Second},
		Named:   map[string]haiku.Objective{"urgent": urgent, "batch": batch},
		MinTTFT: 50 * time.Millisecond,
	}
	closed := route
	closed.MinTTFT = 0
	for name, c := range map[string]struct {
		route     haiku.Objectives
		name, ttf string
		want      haiku.Objective
		status    int
	}{
		"nothing asked":     {route, "", "", route.Default, 200},
		"by name":           {route, "urgent", "", urgent, 200},
		"an unknown name":   {route, "first-class", "", route.Default, 200},
		"a time":            {route, "batch", "750", haiku.Objective{Priority: 5, TTFT: 750 * time.Millisecond}, 200},
		"too short a time":  {route, "urgent", "0.5", haiku.Objective{Priority: -1, TTFT: 50 * time.Millisecond}, 200},
		"times are ignored": {closed, "", "1", closed.Default, 200},
		"no number":         {route, "", "soon", haiku.Objective{}, 400},
		"NaN":               {route, "", "NaN", haiku.Objective{}, 400},
		"negative":          {route, "", "-1", haiku.Objective{}, 400},
		"beyond all time":   {route, "", "1e30", haiku.Objective{}, 400},
	} {
		t.Run(name, func(t *testing.T) {
			var got haiku.Objective
			mux := haiku.New()
			mux.Use(c.route.Middleware())
			mux.Register("/", haiku.HandlerFunc(func(ctx *haiku.Context) {
				stream := haiku.NewStream(ctx.Context(), pieces(), &haiku.Request{})
				got = stream.Request().Objective
				ctx.Writer.WriteHeader(http.StatusOK)
			}))
			req := httptest.NewRequest(http.MethodPost, "/", nil)
			req.Header.Set("x-gateway-inference-objective", c.name)
			req.Header.Set("x-slo-ttft-ms", c.ttf)
			rec := httptest.NewRecorder()
			mux.ServeHTTP(rec, req)
			require.Equal(t, c.status, rec.Code)
			require.Equal(t, c.want, got)
		})
	}
}

func TestARequestsOwnObjectiveComesFirst(t *testing.T) {
	own := haiku.Objective{Priority: 2}
	ctx := haiku.WithObjective(t.Context(), haiku.Objective{Priority: 7, TTFT: time.Second})
	require.Equal(t, own, haiku.NewStream(ctx, pieces(), &haiku.Request{Objective: own}).Request().Objective)
	require.Equal(t, haiku.ObjectiveFrom(ctx), haiku.NewStream(ctx, pieces(), &haiku.Request{}).Request().Objective)
	require.Zero(t, haiku.ObjectiveFrom(t.Context()))
}
