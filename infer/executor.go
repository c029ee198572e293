package infer

import (
	"context"
	"errors"

	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/internal/lora"
)

// SeqID names one running sequence (one choice of one request) to an
// [Executor]. IDs are never reused within the life of an Engine.
type SeqID uint64

// Spec describes what an [Executor] was built to do. It is fixed for the
// executor's life.
type Spec struct {
	// Name tells people which device and kernels are in use, as in "cpu/avx2".
	Name string
	// VocabSize is the number of logits one position yields.
	VocabSize int
	// ContextTokens is the largest number of positions one sequence may have.
	ContextTokens int
	// BlockTokens is the number of positions one KV block holds.
	BlockTokens int
	// Blocks is the number of KV blocks in the pool. Block numbers run from 0
	// to Blocks-1; the Engine alone decides which sequence owns which.
	Blocks int
	// MaxBatchTokens is the most tokens one Step may carry over all its items;
	// 0 means the executor sets no limit.
	MaxBatchTokens int
	// HiddenSize is the length of a hidden state, 0 if the executor cannot
	// write them.
	HiddenSize int
}

// blocksFor is the number of blocks that hold so many positions.
func (s *Spec) blocksFor(positions int) int {
	return (positions + s.BlockTokens - 1) / s.BlockTokens
}

// AdapterID names a low-rank adapter to an [AdapterExecutor]. 0 is none: the
// base model.
type AdapterID uint64

// Item is one sequence's share of a [Batch]: a chunk of its prompt (prefill)
// or the single token sampled last (decode).
type Item struct {
	// Seq says whose tokens these are.
	Seq SeqID
	// Start is the position of Tokens[0]; positions below it were computed by
	// earlier steps, with the same tokens, adapter and scale, and lie in Blocks.
	// It may have been another sequence that computed them.
	Start int
	// Tokens are the ids to compute, [n] with n ≥ 1, at positions
	// Start … Start+n-1.
	Tokens []int32
	// Blocks is the sequence's block table: position p lives in block
	// Blocks[p/BlockTokens] at slot p%BlockTokens. It covers at least
	// Start+n positions.
	Blocks []int32
	// Copy says that this sequence parts from others which it had a block in
	// common with: before anything is computed, the first Start%BlockTokens
	// slots of block CopyFrom are copied to the block of position Start. Other
	// items of the batch may write to later slots of CopyFrom.
	Copy     bool
	CopyFrom int32
	// Logits, when not nil, is where the executor writes the logits after the
	// last token, [VocabSize].
	Logits []float32
	// Hidden, when not nil, is where the executor writes the hidden states of
	// all Tokens after the last norm, [n][HiddenSize].
	Hidden []float32
	// Adapter is applied to all Tokens, 0 for none; its own scale, alpha/rank,
	// is multiplied by AdapterScale. A sequence keeps both for its life.
	Adapter      AdapterID
	AdapterScale float32
	// Err is set by the executor when this item alone has failed. Its Logits
	// are then undefined and the other items are unaffected.
	Err error
}

// Batch is the work of one [Executor.Step].
type Batch struct {
	// Items belong to different sequences; their order carries no meaning.
	Items []Item
}

// Executor computes batches of tokens on a device. It knows nothing of text,
// requests or sampling: those belong to the [Engine], which is its only caller.
//
// An implementation keeps these rules, which haikutest.TestExecutor checks:
//
//   - The Engine calls Step, Release and Close from one goroutine at a time.
//     Spec may be called at any time.
//   - Step owns the batch until it returns and keeps no reference to it after.
//   - An item's logits depend on the sequence's own tokens alone: not on the
//     other items, on how a prompt was cut into chunks, or on the number of
//     threads, to the last bit.
//   - Step may be repeated with the same positions: it overwrites the same
//     keys and values and yields the same logits. The Engine relies on it to
//     find out which item made a whole step fail.
//   - One item's failure is reported in its Err. An error or panic of Step as
//     a whole makes the Engine repeat the items one at a time.
//   - When ctx ends, Step returns early with ctx's error if it can; what it
//     computed is then discarded.
//   - Keys and values stay in their blocks until the Engine has them
//     overwritten, also after Release: later sequences begin with blocks that
//     earlier ones have computed, and several may read the same block.
//   - A sequence exists from its first Step until Release. Release of an unknown
//     sequence does nothing.
//   - Close frees everything. After it Step returns an error that matches
//     [ErrClosed]. Close may be called twice.
type Executor interface {
	Spec() Spec
	Step(ctx context.Context, b *Batch) error
	Release(seq SeqID)
	Close() error
}

// AdapterExecutor is an [Executor] that can add low-rank adapters (LoRA) to its
// model. Items of one batch may name different adapters.
type AdapterExecutor interface {
	Executor
	// LoadAdapter makes the adapter in file known as id, which is not in use.
	// It may be called by any goroutine, also while Step runs, and keeps no
	// reference to file. An adapter that does not fit the model is an error
	// matching [ErrUnsupportedModel] that names the tensor.
	LoadAdapter(ctx context.Context, id AdapterID, file *AdapterFile) error
	// UnloadAdapter frees an adapter that no sequence uses any more. It may be
	// called by any goroutine; an unknown id does nothing.
	UnloadAdapter(id AdapterID)
}

// AdapterFile is a parsed adapter: its tensors and where they came from.
type AdapterFile = lora.File

// ModelFile is a parsed GGUF file: metadata and tensors as views into memory
// that the Engine keeps alive until its executor is closed.
type ModelFile = gguf.File

// Backend builds executors for model files on one kind of device.
type Backend interface {
	// Load prepares the model in file for execution. The file stays open until
	// the executor has been closed, so weights may be used where they lie.
	// A model that the backend cannot run is an error matching
	// [ErrUnsupportedModel] which names what is missing.
	Load(ctx context.Context, file *ModelFile) (Executor, error)
}

var (
	// ErrClosed reports the use of an Engine or Executor after Close.
	ErrClosed = errors.New("infer: closed")
	// ErrOutOfMemory is how an executor reports that the device has no room
	// for an item. The request is refused as overloaded; others go on.
	ErrOutOfMemory = errors.New("infer: out of device memory")
	// ErrUnsupportedModel reports an architecture, tensor type or option that
	// the backend or the engine does not implement.
	ErrUnsupportedModel = errors.New("infer: unsupported model")
)
