package infer

// Tokenizer turns text into tokens and back. It is immutable and safe for
// concurrent use.
type Tokenizer interface {
	// Encode appends the ids of text to dst. With special, the texts of
	// control tokens become those tokens; without it they never do, whatever
	// the text. It adds no begin-of-sequence token.
	Encode(dst []int32, text string, special bool) []int32
	// Pieces returns the bytes that each token stands for, [vocab], empty for
	// control tokens. The caller must not change them.
	Pieces() [][]byte
}

// Text says how an [Engine] reads and writes text for an [Executor] that knows
// tokens only.
type Text struct {
	// Tokenizer must have as many tokens as the executor has logits.
	Tokenizer Tokenizer
	// BOS is put before every prompt that does not begin with it already;
	// empty for none.
	BOS []int32
	// EOS are the tokens that end an answer.
	EOS []int32
	// Specials are the texts of the control tokens. Messages may contain them
	// as text; they never become tokens from there.
	Specials []string
	// ChatTemplate is the Jinja source that renders a conversation, as GGUF's
	// tokenizer.chat_template. Without one the engine continues prompts only.
	ChatTemplate string
	// BOSText and EOSText are what the template's bos_token and eos_token say.
	BOSText, EOSText string
}
