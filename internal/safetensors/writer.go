package safetensors

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
)

// Write writes tensors one after the other, and metadata if there is any. It
// is for tests and for what is generated.
func Write(w io.Writer, metadata map[string]string, tensors ...*Tensor) error {
	header := make(map[string]any, len(tensors)+1)
	if len(metadata) > 0 {
		header["__metadata__"] = metadata
	}
	end := 0
	for _, t := range tensors {
		if _, twice := header[t.Name]; twice {
			return fmt.Errorf("safetensors: tensor %q is given twice", t.Name)
		}
		header[t.Name] = map[string]any{"dtype": t.Type, "shape": append([]int{}, t.Shape...), "data_offsets": []int{end, end + len(t.Data)}}
		end += len(t.Data)
	}
	text, err := json.Marshal(header, json.Deterministic(true))
	if err != nil {
		return err
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	parts := [][]byte{binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text}
	for _, t := range tensors {
		parts = append(parts, t.Data)
	}
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}
