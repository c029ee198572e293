package kserve

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// The service and what is used of it. Names and field numbers are those of
// KServe's grpc_predict_v2.proto, to which Triton's grpc_service.proto adds
// ModelStreamInfer.
const (
	methodLive     = "/inference.GRPCInferenceService/ServerLive"
	methodReady    = "/inference.GRPCInferenceService/ServerReady"
	methodModel    = "/inference.GRPCInferenceService/ModelReady"
	methodMetadata = "/inference.GRPCInferenceService/ModelMetadata"
	methodInfer    = "/inference.GRPCInferenceService/ModelInfer"
	methodStream   = "/inference.GRPCInferenceService/ModelStreamInfer"
)

// Parameters that Triton reserves. The first asks that the end of a model's
// responses be told also when nothing else is left to send; the second tells it.
const (
	parameterEmptyFinal = "triton_enable_empty_final_response"
	parameterFinal      = "triton_final_response"
)

// Parameter is one of an inference's named values beside its tensors.
type Parameter struct {
	Name string
	// Value is a bool, int64, uint64, float64 or string.
	Value any
}

// inferRequest is a ModelInferRequest.
type inferRequest struct {
	model, version, id string
	inference          *Inference
}

// marshal writes the message. Its fields: 1 model_name, 2 model_version, 3 id,
// 4 parameters, 5 inputs, 6 outputs, 7 raw_input_contents.
func (r *inferRequest) marshal() ([]byte, error) {
	size := 256
	for i := range r.inference.Inputs {
		size += len(r.inference.Inputs[i].Raw) + 64
	}
	b := make([]byte, 0, size)
	b = appendText(b, 1, r.model)
	b = appendText(b, 2, r.version)
	b = appendText(b, 3, r.id)
	for _, p := range r.inference.Parameters {
		value, err := p.value()
		if err != nil {
			return nil, err
		}
		entry := appendText(nil, 1, p.Name)
		b = appendBytes(b, 4, appendBytes(entry, 2, value))
	}
	for i := range r.inference.Inputs {
		b = appendBytes(b, 5, r.inference.Inputs[i].describe())
	}
	for _, name := range r.inference.Outputs {
		b = appendBytes(b, 6, appendText(nil, 1, name))
	}
	for i := range r.inference.Inputs {
		b = appendBytes(b, 7, r.inference.Inputs[i].Raw)
	}
	return b, nil
}

// describe is t as an InferInputTensor without contents: 1 name, 2 datatype,
// 3 shape.
func (t *Tensor) describe() []byte {
	b := appendText(nil, 1, t.Name)
	b = appendText(b, 2, t.Datatype)
	var shape []byte
	for _, n := range t.Shape {
		shape = protowire.AppendVarint(shape, uint64(n))
	}
	if len(shape) > 0 {
		b = appendBytes(b, 3, shape)
	}
	return b
}

// value is the parameter as an InferParameter, whose fields are the types.
func (p Parameter) value() ([]byte, error) {
	switch v := p.Value.(type) {
	case bool:
		return appendVarint(nil, 1, protowire.EncodeBool(v)), nil
	case int64:
		return appendVarint(nil, 2, uint64(v)), nil
	case string:
		return appendBytes(nil, 3, []byte(v)), nil
	case float64:
		return protowire.AppendFixed64(protowire.AppendTag(nil, 4, protowire.Fixed64Type), math.Float64bits(v)), nil
	case uint64:
		return appendVarint(nil, 5, v), nil
	}
	return nil, fmt.Errorf("kserve: parameter %q is a %T, which the protocol does not have", p.Name, p.Value)
}

// modelRequest is a ModelReadyRequest or a ModelMetadataRequest: 1 name,
// 2 version.
type modelRequest struct{ name, version string }

func (r *modelRequest) marshal() ([]byte, error) {
	return appendText(appendText(nil, 1, r.name), 2, r.version), nil
}

// emptyRequest is a ServerLiveRequest or a ServerReadyRequest.
type emptyRequest struct{}

func (emptyRequest) marshal() ([]byte, error) { return nil, nil }

func appendText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

func appendBytes(b []byte, field protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), value)
}

func appendVarint(b []byte, field protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), value)
}
