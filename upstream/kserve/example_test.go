package kserve_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/upstream/kserve"
)

// A model on Triton's vLLM backend, reached over TLS.
func Example() {
	model, err := kserve.New("triton.internal:8001", kserve.Options{
		Model:  "vllm_model",
		Name:   "llama-3-8b",
		Render: render,
	}, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13})))
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := model.Ready(ctx); err != nil {
		log.Print(err)
		return
	}
	req := &haiku.Request{Messages: []haiku.Message{{Role: haiku.RoleUser, Content: "A haiku about frogs."}}}
	for tok, err := range haiku.NewStream(ctx, model, req).Tokens() {
		if err != nil {
			log.Print(err)
			return
		}
		fmt.Print(tok.Text)
	}
}

// render is a template in the manner of ChatML. A text that looks like one of
// its marks is no mark when it comes from a message.
func render(messages []haiku.Message) (string, error) {
	var b strings.Builder
	defuse := strings.NewReplacer("<|im_", "<| im_")
	for _, m := range messages {
		fmt.Fprintf(&b, "<|im_start|>%s\n%s<|im_end|>\n", m.Role, defuse.Replace(m.Content))
	}
	b.WriteString("<|im_start|>assistant\n")
	return b.String(), nil
}

// poet is the dialect of a model that its host has written after the vLLM
// backend: the prompt has another name, and there is a tensor more.
type poet struct{ kserve.VLLM }

func (d poet) Build(to *kserve.Inference, req *haiku.Request) error {
	if err := d.VLLM.Build(to, req); err != nil {
		return err
	}
	to.Inputs[0].Name = "PROMPT"
	to.Inputs = append(to.Inputs, kserve.Int32s("lines", 3))
	return nil
}

func ExampleDialect() {
	to := &kserve.Inference{Prompt: "frogs", Stream: true, MaxTokens: 64}
	if err := (poet{kserve.VLLM{Basic: true}}).Build(to, &haiku.Request{}); err != nil {
		log.Fatal(err)
	}
	for _, in := range to.Inputs {
		fmt.Println(in.Name, in.Datatype, in.Shape)
	}
	// Output:
	// PROMPT BYTES [1]
	// stream BOOL [1]
	// sampling_parameters BYTES [1]
	// exclude_input_in_output BOOL [1]
	// lines INT32 [1]
}
