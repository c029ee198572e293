package haikutest_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
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

// A host tests its handler on a fake GPU: the answer is scripted, and the time
// of 50 ms per step passes in no time at all.
func TestPoemIsStreamedWordByWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := haikutest.New(haikutest.Config{
			Pieces: []string{"old", " pond"},
			Answer: func(prompt string) []string { return []string{"old", " pond"} },
			Costs:  haikutest.Costs{Step: 50 * time.Millisecond},
		})
		api := newAPI(haikutest.NewEngine(t, exec, infer.Options{}))

		response := haikutest.NewRecorder()
		request := httptest.NewRequest("POST", "/poem?about=frogs", nil)
		request.Header.Set("Authorization", "Bearer x")
		start := time.Now()
		api.ServeHTTP(response, request)

		for i, want := range []string{`data: "old"`, `data: " pond"`, "data: [DONE]"} {
			flush := response.Flushes()[i]
			if got := strings.TrimSpace(flush.Body); got != want {
				t.Errorf("flush %d is %q, want %q", i, got, want)
			}
			if due := time.Duration(i+1) * 50 * time.Millisecond; flush.At.Sub(start) != due {
				t.Errorf("flush %d comes after %v, want %v", i, flush.At.Sub(start), due)
			}
		}
	})
}

func Example() {
	exec := haikutest.New(haikutest.Config{
		Answer: func(prompt string) []string { return []string{"splash"} },
	})
	engine, err := infer.New(exec, exec.Text(), infer.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	response := haikutest.NewRecorder()
	request := httptest.NewRequest("POST", "/poem?about=frogs", nil)
	newAPI(engine).ServeHTTP(response, request)
	fmt.Println(response.Status(), exec.Counts().Steps)
	// Output: 401 0
}
