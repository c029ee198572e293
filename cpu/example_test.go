package cpu_test

import (
	"context"
	"fmt"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cpu"
	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/tinymodel"
)

// A host that shares its processor limits the threads and the KV memory.
func ExampleOptions() {
	backend := cpu.Options{Threads: 1, KVBytes: 16 << 20}.New()
	engine, err := infer.OpenBytes(tinymodel.GGUF(), backend)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	request := &haiku.Request{Messages: []haiku.Message{{Role: haiku.RoleUser, Content: "Write a haiku about autumn."}}}
	poem, err := haiku.NewStream(context.Background(), engine, request).Text()
	fmt.Println(poem, err)
	// Output:
	// autumn wind and moon
	// the wind carries autumn wind
	// autumn wind and moon <nil>
}
