package openai

import (
	"net/http"

	"github.com/intelliparadigm/haiku"
)

// Handler serves the API of model, to be mounted at /v1/: chat completions,
// completions, embeddings and models. The middleware is put around every route, the first
// outermost.
func Handler(model haiku.Model, mw ...haiku.Middleware) http.Handler {
	mux := haiku.New()
	mux.Use(append([]haiku.Middleware{haiku.Provide(model)}, mw...)...)
	mux.Register("POST /v1/chat/completions", ChatCompletions())
	mux.Register("POST /v1/completions", Completions())
	mux.Register("POST /v1/embeddings", Embeddings())
	mux.Register("GET /v1/models", Models())
	mux.Register("GET /v1/models/{id...}", Models())
	return mux
}

// ChatCompletions answers POST /v1/chat/completions with the route's model.
func ChatCompletions() haiku.InferenceHandler {
	return haiku.HandlerFunc(func(c *haiku.Context) { answer(c, new(ChatCompletionRequest)) })
}

// Completions answers POST /v1/completions with the route's model.
func Completions() haiku.InferenceHandler {
	return haiku.HandlerFunc(func(c *haiku.Context) { answer(c, new(CompletionRequest)) })
}

func answer(c *haiku.Context, payload haiku.Payload) {
	if err := c.Bind(payload); err != nil {
		c.AbortWithError(err)
		return
	}
	req, err := payload.InferenceRequest()
	if err != nil {
		c.AbortWithError(err)
		return
	}
	model, ok := haiku.ModelFrom(c.Context())
	if !ok {
		c.AbortWithError(haiku.ErrInternal.With("", "this route has no model"))
		return
	}
	c.Stream(haiku.NewStream(c.Context(), model, req))
}

// Model describes a model as the API does.
type Model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	// Parent is the base model of an adapter.
	Parent string `json:"parent,omitzero"`
	// MaxModelLen is the context length in tokens, as vLLM shows it.
	MaxModelLen int `json:"max_model_len,omitzero"`
}

// ModelList is the answer to GET /v1/models.
type ModelList struct {
	Object string  `json:"object"`
	Data   []Model `json:"data"`
}

// Models answers GET /v1/models with all models that the route's model knows,
// and GET /v1/models/{id...} with one.
func Models() haiku.InferenceHandler {
	return haiku.HandlerFunc(func(c *haiku.Context) {
		id := c.Request.PathValue("id")
		list := ModelList{Object: "list", Data: []Model{}}
		for _, info := range listed(c) {
			m := Model{info.ID, "model", info.Created, info.OwnedBy, info.Parent, info.ContextTokens}
			if id != "" && m.ID == id {
				c.JSON(http.StatusOK, m)
				return
			}
			list.Data = append(list.Data, m)
		}
		if id != "" {
			c.AbortWithError(haiku.ModelNotFound(id))
			return
		}
		c.JSON(http.StatusOK, list)
	})
}

func listed(c *haiku.Context) []haiku.ModelInfo {
	model, _ := haiku.ModelFrom(c.Context())
	return haiku.ModelsOf(model)
}
