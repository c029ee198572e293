package cpu

import (
	"context"
	"fmt"
	"runtime"

	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/internal/model"
	"github.com/intelliparadigm/haiku/internal/simd"
)

// Options say how much of the machine a model may use. The zero value is
// sensible everywhere.
type Options struct {
	// Threads is the number of goroutines that compute, the caller of Step
	// included. 0 means GOMAXPROCS.
	Threads int
	// ContextTokens is the most positions a sequence may have. 0 means what the
	// model was trained for, or less if KVBytes has no room for it.
	ContextTokens int
	// KVBytes bounds the memory for keys and values. 0 means 1 GiB. Memory is
	// taken for at most 16 sequences of ContextTokens, and touched when used.
	KVBytes int64
	// KV is how keys and values are kept. 0 means in F16, as llama.cpp does.
	KV KVFormat
	// BlockTokens is the number of positions in a KV block. 0 means 32.
	BlockTokens int
	// MaxBatchTokens is the most tokens of one step over all items, for which
	// activations are kept. 0 means 512, or fewer where that takes over 256 MiB.
	MaxBatchTokens int
	// Weights is how the matrices of the layers are kept. 0 means as they are
	// stored, where they lie in the file.
	Weights WeightFormat
}

// KVFormat is how keys and values are kept.
type KVFormat uint8

const (
	// KVF16 takes 2 bytes for an element, rounded to nearest; what is beyond
	// ±65504 becomes infinite.
	KVF16 KVFormat = iota
	// KVF32 takes 4 bytes and rounds nothing.
	KVF32
	// KVQ8_0 takes 34 bytes for 32 elements of a head, whose length must be a
	// multiple of 32.
	//
	//lint:ignore ST1003 the name is GGUF's
	KVQ8_0
)

// kvFormats are the kernels' names of them.
var kvFormats = [...]simd.Format{KVF16: simd.F16, KVF32: simd.F32, KVQ8_0: simd.Q8_0}

// WeightFormat is how the matrices of a model's layers are kept.
type WeightFormat uint8

const (
	// WeightsAsStored are read where they lie.
	WeightsAsStored WeightFormat = iota
	// WeightsFP8E4M3 are rounded at load to E4M3 with one float32 scale for 128
	// weights of a row, the largest of which becomes 448. They are multiplied
	// with float32 activations: the values that a GPU's FP8 path is compared
	// with. Embedding, output and routers stay as they are stored.
	WeightsFP8E4M3
)

const (
	defaultKVBytes        = 1 << 30
	defaultBlockTokens    = 32
	defaultMaxBatchTokens = 512
	// activationBytes bounds the activations of a default MaxBatchTokens.
	activationBytes = 256 << 20
	// maxActivationBytes bounds those of one that was asked for.
	maxActivationBytes = 16 << 30
	// fullContexts is the number of sequences of full length that the pool has
	// room for unless KVBytes is less.
	fullContexts = 16
	// maxOption bounds every option, so that sums of them cannot overflow.
	maxOption = 1 << 20
)

// Backend loads models for the processor. It is immutable and safe for
// concurrent use.
type Backend struct {
	options Options
	level   simd.Level
}

var _ infer.Backend = (*Backend)(nil)

// New returns a backend with default options.
func New() *Backend { return Options{}.New() }

// New returns a backend with these options.
func (o Options) New() *Backend { return &Backend{options: o, level: simd.Best()} }

// Load checks the model in file and allocates its KV blocks. Weights are used
// where they lie, so file stays open until the executor is closed.
//
// Errors match [infer.ErrUnsupportedModel] and name what is missing, or
// [infer.ErrOutOfMemory] and name the bytes wanted and allowed.
func (b *Backend) Load(ctx context.Context, file *infer.ModelFile) (infer.Executor, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m, err := model.Load(file)
	if err != nil {
		return nil, fmt.Errorf("cpu: %w: %w", infer.ErrUnsupportedModel, err)
	}
	options, err := b.options.withDefaults()
	if err != nil {
		return nil, err
	}
	if options.Weights == WeightsFP8E4M3 {
		if err := m.Requantise(simd.F8E4M3, options.Threads); err != nil {
			return nil, fmt.Errorf("cpu: %w: %w", infer.ErrUnsupportedModel, err)
		}
	}
	spec, err := plan(options, &m.Config)
	if err != nil {
		return nil, err
	}
	spec.Name = "cpu/" + b.level.String()
	e, err := newExecutor(m, spec, b.level, options)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// withDefaults fills in zeros and refuses what makes no sense.
func (o Options) withDefaults() (Options, error) {
	for _, field := range []struct {
		name   string
		value  *int
		preset int
	}{
		{"Threads", &o.Threads, runtime.GOMAXPROCS(0)},
		{"ContextTokens", &o.ContextTokens, 0},
		{"BlockTokens", &o.BlockTokens, defaultBlockTokens},
		{"MaxBatchTokens", &o.MaxBatchTokens, 0},
	} {
		if *field.value < 0 || *field.value > maxOption {
			return o, fmt.Errorf("cpu: option %s is %d, want 0 to %d", field.name, *field.value, maxOption)
		}
		if *field.value == 0 {
			*field.value = field.preset
		}
	}
	o.Threads = min(o.Threads, maxThreads)
	if o.Weights > WeightsFP8E4M3 {
		return o, fmt.Errorf("cpu: option Weights is %d, want 0 or 1", o.Weights)
	}
	if int(o.KV) >= len(kvFormats) {
		return o, fmt.Errorf("cpu: option KV is %d, want 0 to %d", o.KV, len(kvFormats)-1)
	}
	if o.KVBytes < 0 {
		return o, fmt.Errorf("cpu: option KVBytes is %d, want 0 or more", o.KVBytes)
	}
	if o.KVBytes == 0 {
		o.KVBytes = defaultKVBytes
	}
	return o, nil
}

// plan decides how many blocks there are and how long a sequence may be.
func plan(o Options, c *model.Config) (infer.Spec, error) {
	rowBytes := kvFormats[o.KV].RowBytes(c.HeadDim)
	if rowBytes == 0 {
		return infer.Spec{}, fmt.Errorf("cpu: %w: option KV is %s, and the model's heads of %d elements are no whole blocks of it",
			infer.ErrUnsupportedModel, kvFormats[o.KV], c.HeadDim)
	}
	bytesPerBlock := int64(2*c.LayerCount*c.KVHeads*rowBytes) * int64(o.BlockTokens)
	context := min(c.Context, maxOption)
	if o.ContextTokens > c.Context {
		return infer.Spec{}, fmt.Errorf("cpu: option ContextTokens is %d, the model has %d", o.ContextTokens, c.Context)
	}
	affordable := o.KVBytes / bytesPerBlock
	if o.ContextTokens > 0 {
		context = o.ContextTokens
	} else {
		context = int(min(int64(context), max(1, affordable)*int64(o.BlockTokens)))
	}
	perContext := int64((context + o.BlockTokens - 1) / o.BlockTokens)
	if perContext > affordable {
		return infer.Spec{}, fmt.Errorf("cpu: %w: keys and values of %d tokens need %d bytes, option KVBytes allows %d",
			infer.ErrOutOfMemory, context, perContext*bytesPerBlock, o.KVBytes)
	}
	batch := o.MaxBatchTokens
	if batch == 0 {
		batch = min(defaultMaxBatchTokens, max(1, activationBytes/(4*activationFloats(c))))
	}
	if need := 4 * int64(batch) * int64(activationFloats(c)); need > maxActivationBytes {
		return infer.Spec{}, fmt.Errorf("cpu: %w: the activations of a step of %d tokens need %d bytes, %d are allowed",
			infer.ErrOutOfMemory, batch, need, int64(maxActivationBytes))
	}
	return infer.Spec{
		VocabSize:      c.Vocab,
		ContextTokens:  context,
		BlockTokens:    o.BlockTokens,
		Blocks:         int(min(fullContexts*perContext, affordable)),
		MaxBatchTokens: batch,
		HiddenSize:     c.Dim,
	}, nil
}
