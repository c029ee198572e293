// Package haikutest is to Haiku what net/http/httptest is to net/http: what a
// host needs to test its own handlers without a model or a GPU, and what an
// implementer needs to know that an Executor or a Model keeps its contract.
//
// # Testing a handler
//
// A fake executor stands in for the GPU. It answers what it is told to, takes
// the time it is told to, and fails where it is told to:
//
//	exec := haikutest.New(haikutest.Config{
//		Pieces: []string{"old", " pond"},
//		Answer: func(prompt string) []string { return []string{"old", " pond"} },
//		Costs:  haikutest.Costs{Step: 10 * time.Millisecond},
//	})
//	engine := haikutest.NewEngine(t, exec, infer.Options{})
//
// Its time is that of timers, so inside testing/synctest a test of minutes
// takes none. A [Recorder] is the response: it keeps each flush with its time,
// and can stop reading as a client does that has gone to sleep.
//
// After the test, [Executor.Counts] tells what was computed and
// [Executor.Violations] whether the engine kept its side of the contract.
//
// # Testing an implementation
//
// [TestExecutor] and [TestModel] run the contracts in the doc comments of
// infer.Executor and haiku.Model as tests; [CheckExecutor] and [CheckModel]
// return what is wrong as an error.
package haikutest
