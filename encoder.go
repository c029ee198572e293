package haiku

// Encoder gives an answer its bytes on the wire. [Context.Stream] calls it
// from one goroutine, in the order Begin, Token…, End; each method appends to
// dst and returns the longer slice, as strconv.AppendInt does, and keeps no
// reference to it.
//
// ContentType decides how the bytes leave. With "text/event-stream" each
// appended piece is flushed as soon as nothing else is ready. With any other
// type nothing is written before End, which then sets the status from the
// error, so that one handler serves both forms.
type Encoder interface {
	// ContentType is the response's media type, fixed for the stream.
	ContentType() string
	// Begin appends what comes before the first token.
	Begin(dst []byte, h Head) []byte
	// Token appends one delta.
	Token(dst []byte, d *Delta) []byte
	// End appends what comes after the last token: the closing of a good
	// answer when err is nil, otherwise the error: for event streams one whole
	// event, possibly without a Begin before it, and for other types the
	// whole body, for which dst is empty again.
	End(dst []byte, u Usage, err *Error) []byte
}

// Head says what is known about an answer when its first byte is due.
type Head struct {
	ID    string // the request's ID
	Model string // the model that serves it
}

// Delta is the piece of an answer between two flushes of its text.
// It is valid only during the call that receives it.
type Delta struct {
	Choice int
	// Escaped is the text, escaped for the inside of a JSON string.
	Escaped []byte
	// Logprobs are those of the tokens whose text ends in this delta.
	Logprobs []TokenLogprob
	// Members are the JSON members that the delta carries beside its text,
	// without the braces around them: valid, each name once, never content or
	// role, and without line breaks. Where both are there, they come before the
	// text.
	Members []byte
	// Finish is not empty on the choice's last delta.
	Finish FinishReason
}
