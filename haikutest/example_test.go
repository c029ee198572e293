package haikutest_test

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
)

// newAPI is the host's code that is to be tested: a route that says who may
// ask, and streams.
func newAPI(model haiku.Model) *haiku.Mux {
	mux := haiku.New()
	mux.Register("POST /poem", haiku.HandlerFunc(func(c *haiku.Context) {
		if c.Request.Header.Get("Authorization") == "" {
			c.AbortWithStatus(401)
			return
		}
		stream := infer.NewStream(c.Context(), &haiku.Request{
			Messages: []haiku.Message{{Role: haiku.RoleUser, Content: c.Request.FormValue("about")}},
		})
		c.Stream(stream)
	}), haiku.Provide(model))
	return mux
}

// poem asks newAPI for a poem on behalf of somebody.
func poem(api *haiku.Mux, authorization string) *haikutest.Recorder {
	request := httptest.NewRequest("POST", "/poem?about=frogs", nil)
	request.Header.Set("Authorization", authorization)
	response := haikutest.NewRecorder()
	api.ServeHTTP(response, request)
	return response
}

func TestPoemsAreForThoseWhoSayWhoTheyAre(t *testing.T) {
	if status := poem(newAPI(haikutest.NewModel(t, "old", " pond")), "").Status(); status != 401 {
		t.Errorf("status %d, want 401", status)
	}
}

// Each step of the fake GPU takes 50 ms, which pass in no time at all.
func TestPoemIsStreamedWordByWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := haikutest.Says("old", " pond")
		config.Costs.Step = 50 * time.Millisecond
		api := newAPI(haikutest.NewEngine(t, haikutest.New(config), infer.Options{}))

		start := time.Now()
		events := poem(api, "Bearer x").Events()
		for i, want := range []string{`"old"`, `" pond"`, "[DONE]"} {
			if events[i].Data != want {
				t.Errorf("event %d is %s, want %s", i, events[i].Data, want)
			}
			due := time.Duration(i+1) * 50 * time.Millisecond
			if at := events[i].At.Sub(start); at != due {
				t.Errorf("event %d comes after %v, want %v", i, at, due)
			}
		}
	})
}

// What becomes of a poem when the GPU has no room is the host's to know, too.
func TestPoemIsRefusedWhenMemoryRunsOut(t *testing.T) {
	exec := haikutest.New(haikutest.Config{
		Faults: []haikutest.Fault{{Kind: haikutest.OutOfMemory}},
	})
	response := poem(newAPI(haikutest.NewEngine(t, exec, infer.Options{})), "Bearer x")
	if response.Status() != 503 {
		t.Errorf("status %d, want 503", response.Status())
	}
}

func Example() {
	config := haikutest.Says("old", " pond")
	exec := haikutest.New(config)
	engine, err := infer.New(exec, exec.Text(), infer.Options{}) // in a test: haikutest.NewEngine
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()

	response := poem(newAPI(engine), "Bearer x")
	fmt.Println(response.Status())
	for _, event := range response.Events() {
		fmt.Println(event.Data)
	}
	fmt.Println(exec.Counts().DecodeTokens, "tokens decoded")
	// Output:
	// 200
	// "old"
	// " pond"
	// [DONE]
	// 2 tokens decoded
}
