package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// A matcher says how many bytes of a match of its expression begin s, which is
// not empty. 0 is none, and -n that none begins in the first n bytes either. It
// sees the rest of the text it works on, but nothing before s.
type matcher func(s string) int

// pretokenizer cuts text into words: each matcher in turn isolates its matches
// in the pieces that the ones before it have left. Together the words are the
// text.
type pretokenizer []matcher

// each calls yield with every word.
func (p pretokenizer) each(s string, yield func(word string)) {
	if len(p) == 0 {
		yield(s)
		return
	}
	gap := 0 // where what has not matched begins
	for at := 0; at < len(s); {
		n := p[0](s[at:])
		switch {
		case n > 0:
			if gap < at {
				p[1:].each(s[gap:at], yield)
			}
			p[1:].each(s[at:at+n], yield)
			at += n
			gap = at
		case n < 0:
			at -= n
		default:
			_, width := utf8.DecodeRuneInString(s[at:])
			at += width
		}
	}
	if gap < len(s) {
		p[1:].each(s[gap:], yield)
	}
}

// preset is what the name of a pre-tokeniser stands for.
type preset struct {
	words        pretokenizer
	ignoreMerges bool // a word that is a token is that token
	addBOS       bool // unless the file says otherwise
}

// presetOf returns the preset for a value of tokenizer.ggml.pre. The
// expressions are those of the models' own tokenizer.json files.
func presetOf(name string) (preset, bool) {
	number, digits := one(unicode.IsNumber), repeated(3, isDigit)
	switch name {
	case "gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "jina-v1-en", "jina-v2-code", "roberta-bpe",
		"gigachat", "a.x-4.0", "mellum", "modern-bert", "exaone4", "mpt", "olmo", "jais", "trillion", "granite-docling":
		return preset{words: pretokenizer{gpt2}}, true
	case "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano":
		return preset{words: pretokenizer{tiktoken(3)}, ignoreMerges: true, addBOS: true}, true
	case "dbrx", "smaug-bpe", "glm4", "chatglm-bpe":
		return preset{words: pretokenizer{tiktoken(3)}}, true
	case "qwen2", "deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2", "kormo", "f2llmv2":
		return preset{words: pretokenizer{tiktoken(1)}}, true
	case "starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2":
		return preset{words: pretokenizer{number, gpt2}}, true
	case "falcon":
		// [\p{P}$+<=>^~|`]+ and [0-9][0-9][0-9]
		return preset{words: pretokenizer{run(oneOf(unicode.IsPunct, "$+<=>^~|`")), gpt2, digits}}, true
	case "default":
		return preset{words: pretokenizer{run(oneOf(unicode.IsPunct, "$+<=>^~|")), gpt2, run(unicode.IsNumber), digits}}, true
	case "deepseek-coder":
		return preset{words: pretokenizer{one(isNewline), spaced(unicode.IsLetter), spaced(unicode.IsPunct), run(isWide), number}}, true
	case "deepseek-llm":
		return preset{words: pretokenizer{one(isNewline), spaced(in(casedLetters)), spaced(in(marksAndSigns)), spacesAtEnd, run(isWide), run(unicode.IsNumber)}}, true
	case "deepseek-v3", "hunyuan-dense", "joyai-llm":
		return preset{words: pretokenizer{upTo(3, unicode.IsNumber), run(in(hanAndKana)), deepseek3}}, true
	}
	return preset{}, false
}

// gpt2 is 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func gpt2(s string) int {
	if n := contraction(s); n > 0 && isLower(s[1:n]) {
		return n
	}
	space := leadingSpace(s)
	for _, is := range [...]func(rune) bool{unicode.IsLetter, unicode.IsNumber, isOther} {
		if n := prefix(s[space:], is); n > 0 {
			return space + n
		}
	}
	return blanks(s)
}

// tiktoken returns the expression that Llama 3 and Qwen 2 have from GPT-4, up
// to the number of digits in a word:
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}|
//	 ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func tiktoken(digits int) matcher {
	number := upTo(digits, unicode.IsNumber)
	return func(s string) int {
		if n := contraction(s); n > 0 {
			return n
		}
		first, width := utf8.DecodeRuneInString(s)
		if unicode.IsLetter(first) {
			width = 0
		}
		if !isNewline(first) && !unicode.IsNumber(first) {
			if n := prefix(s[width:], unicode.IsLetter); n > 0 {
				return width + n
			}
		}
		if n := number(s); n > 0 {
			return n
		}
		space := leadingSpace(s)
		if n := prefix(s[space:], isOther); n > 0 {
			n += space
			return n + prefix(s[n:], isNewline)
		}
		if n := lines(s); n > 0 {
			return n
		}
		return blanks(s)
	}
}

// deepseek3 is [ASCII punctuation][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
//
//	?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func deepseek3(s string) int {
	first, width := utf8.DecodeRuneInString(s)
	if first < utf8.RuneSelf && isSign(first) {
		if n := prefix(s[1:], isASCIILetter); n > 0 {
			return 1 + n
		}
	}
	if !isNewline(first) && !isSign(first) && !unicode.IsLetter(first) {
		if n := prefix(s[width:], isLetterOrMark); n > 0 {
			return width + n
		}
	}
	if n := prefix(s, isLetterOrMark); n > 0 {
		return n
	}
	space := leadingSpace(s)
	if n := prefix(s[space:], isSign); n > 0 {
		n += space
		return n + prefix(s[n:], isNewline)
	}
	if n := lines(s); n > 0 {
		return n
	}
	return blanks(s)
}

// contraction is (?i:'s|'t|'re|'ve|'m|'ll|'d) in ASCII.
func contraction(s string) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	switch s[1] | 0x20 {
	case 's', 't', 'm', 'd':
		return 2
	}
	if len(s) < 3 {
		return 0
	}
	switch string([]byte{s[1] | 0x20, s[2] | 0x20}) {
	case "re", "ve", "ll":
		return 3
	}
	return 0
}

func isLower(s string) bool { return prefix(s, unicode.IsLower) == len(s) }

// leadingSpace is " ?".
func leadingSpace(s string) int {
	if s[0] == ' ' {
		return 1
	}
	return 0
}

// lines is \s*[\r\n]+, and does not look past the spaces that begin s.
func lines(s string) int {
	end := 0
	for i, r := range s {
		if !unicode.IsSpace(r) {
			break
		}
		if isNewline(r) {
			end = i + 1
		}
	}
	return end
}

// blanks is \s+(?!\S)|\s+: all spaces, but for the last where a word follows.
func blanks(s string) int {
	n := prefix(s, unicode.IsSpace)
	if n == len(s) {
		return n
	}
	if _, last := utf8.DecodeLastRuneInString(s[:n]); last < n {
		return n - last
	}
	return n
}

// spacesAtEnd is \s+$.
func spacesAtEnd(s string) int {
	n := prefix(s, unicode.IsSpace)
	if n == len(s) {
		return n
	}
	return -n
}
