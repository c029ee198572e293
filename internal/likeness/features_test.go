package likeness_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku/internal/likeness"
)

// TestGates names, for each gate, what it refuses and what it lets pass.
func TestGates(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want likeness.Reason
	}{
		{"", "", likeness.Unfounded},
		{"add 5 apples", "add five apples", likeness.Unfounded},
		{"add 5 apples", "add 6 apples", likeness.Numbers},
		{"pay 1,000 now", "pay 1000 now", likeness.Unfounded},
		{"pay 1,000 now", "pay 1.000 now", likeness.Numbers},
		{"two hundred and more", "200 and more", likeness.Unfounded},
		{"twenty five boxes", "25 boxes", likeness.Unfounded},
		{"three million boxes", "3,000,000 boxes", likeness.Unfounded},
		{"the 3rd box", "the third box", likeness.Unfounded},
		{"the 3rd box", "3 the box", likeness.Numbers},
		{"it weighs 5kg", "it weighs 5 kilograms", likeness.Unfounded},
		{"it weighs 5kg", "it weighs 5 lb", likeness.Numbers},
		{"it costs $5", "it costs 5 dollars", likeness.Unfounded},
		{"it costs $5", "it costs €5", likeness.Numbers},
		{"it is -5 outside", "it is 5 outside", likeness.Numbers},
		{"10 minus 5", "5 minus 10", likeness.Numbers},
		{"on 2024-01-05", "on 5 January 2024", likeness.Unfounded},
		{"on 2024-01-05", "on January 6, 2024", likeness.Numbers},
		{"go 1.2.3", "go v1.2.3", likeness.Unfounded},
		{"go 1.2.3", "go 1.2.4", likeness.Numbers},
		{"१२ apples", "12 apples", likeness.Unfounded},
		{"１２ apples", "12 apples", likeness.Unfounded},
		{"it works", "it never works", likeness.Negation},
		{"it isn't cheap", "it is not cheap", likeness.Unfounded},
		{"it is safe and not cheap", "it is not safe and cheap", likeness.Negation},
		{"say “hello you”", `say "hello you"`, likeness.Unfounded},
		{"say 'hello you'", "say 'hello me'", likeness.Quotes},
		{"run `a b`", "run `a c`", likeness.Code},
		{"fix ```\nx := 1\n```", "fix ```\nx := 2\n```", likeness.Code},
		{"call snake_case", "call snake_cases", likeness.Code},
		{"call camelCase", "call camelCases", likeness.Code},
		{"read main.go", "read main.py", likeness.Code},
		{"who calls foo()?", "who does foo() call?", likeness.Order},
		{"what happened in Rome", "what happened in Nome", likeness.Names},
		{"what happened in rome", "what happened in Rome", likeness.Unfounded},
		{"is it in the US", "is it in the UK", likeness.Names},
		{"increase it", "decrease it", likeness.Direction},
		{"wash before dinner", "wash after dinner", likeness.Direction},
		{"what is my name", "what is your name", likeness.Direction},
		{"when did it end", "where did it end", likeness.Question},
		{"can it end", "should it end", likeness.Question},
		{"does it rain", "did it rain", likeness.Question},
		{"the capital of France", "France's capital", likeness.Unfounded},
		{"do dogs chase cats", "do cats chase dogs", likeness.Order},
		{"from paris to london", "from london to paris", likeness.Order},
		{"the problem isn't who has money", "the problem is who doesn't have money", likeness.Order},
		{"what is a fool", "you are a fool", likeness.Question},
		{"the sky", "the sea", likeness.Words},
		{"東京の人口", "大阪の人口", likeness.Words},
	} {
		_, why := likeness.Same(likeness.Of(tt.a), likeness.Of(tt.b))
		require.Equal(t, tt.want.String(), why.String(), "%q, %q", tt.a, tt.b)
	}
}

// texts draws from pieces that the gates know, and anything else.
func texts() *rapid.Generator[string] {
	piece := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		"not", "isn't", "5", "-5kg", "1,000", "2024-01-05", "January", "5th", "first", "twenty", "hundred", "of", "or", "between", "and",
		"`", "```", `"`, "'", "in", ",", "Paris", "a_b", "fooBar", "x.y", "how many", "please", "my", "of the", "\xff", "東京", "can you",
	}))
	return rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(t, "pieces"), " ") })
}

func TestSameIsSymmetricAndReflexive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := texts().Draw(t, "a"), texts().Draw(t, "b")
		fa, fb := likeness.Of(a), likeness.Of(b)
		require.Equal(t, fa, likeness.Of(a))
		ok, why := likeness.Same(fa, fa)
		require.True(t, ok, "%v", why)
		ab, whyAB := likeness.Same(fa, fb)
		ba, whyBA := likeness.Same(fb, fa)
		require.Equal(t, ab, ba)
		require.Equal(t, whyAB, whyBA)
		if ab {
			facts, _ := likeness.SameFacts(fa, fb)
			require.True(t, facts, "what Same lets pass, SameFacts does")
		}
	})
}

func FuzzOf(f *testing.F) {
	for _, s := range []string{"", "\xff\xfe", "it isn't 'so' `x` \"y", "$-1,2.3-4:5/6kg 5th of May 2020", "of a of b or", "٣ and ½ x²"} {
		f.Add(s, "in Rome, what's up?")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		fa, fb := likeness.Of(a), likeness.Of(b)
		if ok, why := likeness.Same(fa, fa); !ok {
			t.Fatalf("%q differs from itself by %v", a, why)
		}
		ab, _ := likeness.Same(fa, fb)
		ba, _ := likeness.Same(fb, fa)
		require.Equal(t, ab, ba)
		likeness.Lexical{}.Embed(a)
	})
}

// TestLongTextsTakeLinearTime gives a megabyte of one piece; anything quadratic
// would take minutes.
func TestLongTextsTakeLinearTime(t *testing.T) {
	size := 1 << 20
	if testing.Short() {
		size = 1 << 14
	}
	start := time.Now()
	for _, piece := range []string{"a", "1", "`", "\"", "'", " '", "' ", ".", ",", "-", " ", "\xff", "é", "\u0301", "a of ", "a or ", "one ", "hundred ", "please ", "5 May ", "in ", "9-", "n't", "A", "x.", "a-"} {
		// What is a character is checked at a megabyte, longer pieces at
		// a sixteenth.
		bytes := size
		if len(piece) > 2 {
			bytes /= 16
		}
		text := strings.Repeat(piece, bytes/len(piece))
		ok, _ := likeness.Same(likeness.Of(text), likeness.Of(text))
		require.True(t, ok)
	}
	likeness.Lexical{}.Embed(strings.Repeat("a", size))
	require.Less(t, time.Since(start), 60*time.Second)
}

func TestLongTextsAreComparedByHash(t *testing.T) {
	var b strings.Builder
	for i := range 300 {
		b.WriteString(" word" + strings.Repeat("x", i%17) + strings.Repeat("y", i/17))
	}
	ok, _ := likeness.SameFacts(likeness.Of(b.String()), likeness.Of(b.String()))
	require.True(t, ok)
	ok, why := likeness.SameFacts(likeness.Of(b.String()), likeness.Of(b.String()+" more"))
	require.False(t, ok, "%v", why)
}

func TestLexicalIsOfUnitLength(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := texts().Draw(t, "text")
		v := likeness.Lexical{}.Embed(s)
		require.Equal(t, v, likeness.Lexical{}.Embed(s))
		require.Len(t, v, likeness.Dimensions)
		if n := dot(v, v); n != 0 {
			require.InDelta(t, 1, n, 1e-5)
		}
	})
}

func TestLexicalSeesSharedLetters(t *testing.T) {
	e := likeness.Lexical{}
	base := e.Embed("How do I reset my password?")
	require.InDelta(t, 1, dot(base, e.Embed("how do i RESET my password")), 1e-6)
	near, far := dot(base, e.Embed("How can I reset my passwords?")), dot(base, e.Embed("What is the capital of France?"))
	require.Greater(t, near, 0.5)
	require.Less(t, math.Abs(far), 0.3)
}

func dot(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

func BenchmarkOf(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		likeness.Of("How do I install Python 3.11 on Ubuntu without removing the old version?")
	}
}

func BenchmarkSame(b *testing.B) {
	b.ReportAllocs()
	x, y := likeness.Of("How do I install Python 3.11 on Ubuntu?"), likeness.Of("How can I install Python 3.11 on Ubuntu?")
	for b.Loop() {
		likeness.Same(x, y)
	}
}

func BenchmarkLexical(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		likeness.Lexical{}.Embed("How do I install Python 3.11 on Ubuntu without removing the old version?")
	}
}
