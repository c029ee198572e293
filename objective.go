package haiku

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// Objective is what a request may expect of the scheduler that it meets.
type Objective struct {
	// Priority is its level: lower ones are served first, 0 is the usual one. A
	// request that waits long rises, so that a low level is slow and not starved.
	Priority int
	// TTFT is the time to first token that is wanted, from the request's arrival;
	// 0 is any. Inside a level the earliest due comes first, and a request that
	// cannot be served in time is refused early with [ErrTooBusy].
	TTFT time.Duration
}

type objectiveKey struct{}

// WithObjective returns a context whose streams have an objective, unless their
// requests name one themselves.
func WithObjective(ctx context.Context, o Objective) context.Context {
	return context.WithValue(ctx, objectiveKey{}, o)
}

// ObjectiveFrom returns the objective in ctx, or the zero Objective.
func ObjectiveFrom(ctx context.Context) Objective {
	o, _ := ctx.Value(objectiveKey{}).(Objective)
	return o
}

// Objectives give the requests of a route their objective. Its headers are those
// of the Gateway API Inference Extension:
//
//   - x-gateway-inference-objective names one of Named; another name is Default.
//   - x-slo-ttft-ms asks for a time to first token in milliseconds.
//
// What a client may ask for is the host's to say: the names it lists, and no
// time shorter than MinTTFT.
type Objectives struct {
	Default Objective
	Named   map[string]Objective
	// MinTTFT is the shortest time that x-slo-ttft-ms can ask for; a shorter one
	// becomes this. 0 ignores the header.
	MinTTFT time.Duration
}

// Middleware sets the objective of each request's context.
func (o Objectives) Middleware() Middleware {
	return func(next InferenceHandler) InferenceHandler {
		return HandlerFunc(func(c *Context) {
			objective, err := o.of(c.Request.Header)
			if err != nil {
				c.AbortWithError(err)
				return
			}
			c.Request = c.Request.WithContext(WithObjective(c.Context(), objective))
			next.ServeInference(c)
		})
	}
}

// of reads the objective that a request's headers ask for.
func (o Objectives) of(h http.Header) (Objective, error) {
	objective, ok := o.Named[h.Get("x-gateway-inference-objective")]
	if !ok {
		objective = o.Default
	}
	asked := h.Get("x-slo-ttft-ms")
	if asked == "" || o.MinTTFT <= 0 {
		return objective, nil
	}
	ms, err := strconv.ParseFloat(asked, 64)
	if err != nil || !(ms > 0) || ms > maxObjectiveMS {
		return Objective{}, ErrInvalidRequest.With("x-slo-ttft-ms", "x-slo-ttft-ms is not a number of milliseconds")
	}
	objective.TTFT = max(o.MinTTFT, time.Duration(ms*float64(time.Millisecond)))
	return objective, nil
}

// maxObjectiveMS is a day: more is a mistake.
const maxObjectiveMS = 24 * 60 * 60 * 1000
