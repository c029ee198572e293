// Package haikutest is to Haiku what net/http/httptest is to net/http: what a
// host needs to test its own handlers without a model or a GPU, and what an
// implementer needs to know that an Executor or a Model keeps its contract.
//
// # Testing a handler
//
// In most tests the answer is all that matters, and one line makes a model that
// gives it, token by token:
//
//	api := newAPI(haikutest.NewModel(t, "old", " pond"))
//	response := haikutest.NewRecorder()
//	api.ServeHTTP(response, request)
//	for _, event := range response.Events() { … }
//
// Behind it stands the real engine over a fake GPU, an [Executor]. Where time,
// load or failure matter, a [Config] says what the GPU answers to which prompt,
// how long it takes and where it fails:
//
//	exec := haikutest.New(haikutest.Config{
//		Pieces: []string{"old", " pond"},
//		Answer: func(prompt string) []string { return []string{"old", " pond"} },
//		Costs:  haikutest.Costs{Step: 10 * time.Millisecond},
//		Faults: []haikutest.Fault{{Kind: haikutest.OutOfMemory, Position: 2000}},
//	})
//	api := newAPI(haikutest.NewEngine(t, exec, infer.Options{}))
//
// Its time is that of timers, so inside a bubble of testing/synctest a test of
// minutes takes none, and every moment is exact. Pieces may be parts of
// characters, as those of real models are.
//
// A [Recorder] is the response. It keeps each flush with its time, and its
// reader can stop reading or go away at any point of the answer, which
// [Recorder.OnFlush] finds exactly.
//
// Afterwards [Executor.Counts] tells what was computed, and the end of the test
// checks that no sequence is left open and that [Executor.Violations] is empty.
//
// # Testing an implementation
//
// [TestExecutor] and [TestModel] run the contracts in the doc comments of
// infer.Executor and haiku.Model as tests:
//
//	func TestContract(t *testing.T) {
//		haikutest.TestExecutor(t, func(t *testing.T) infer.Executor { return open(t) })
//	}
//
// [CheckExecutor] and [CheckModel] return what is wrong as an error.
package haikutest
