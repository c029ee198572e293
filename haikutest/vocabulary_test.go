package haikutest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/infer"
)

func TestTextBecomesTheLongestPiecesThatFit(t *testing.T) {
	v := newVocabulary([]string{"a", "abc", "ab", "", "abc"})
	a, abc, ab := pieceToken, pieceToken+1, pieceToken+2
	require.Len(t, v.Pieces(), int(pieceToken)+3, "neither empty pieces nor the same one twice")
	require.Equal(t, []int32{9, abc, ab, byteToken + 'x', a}, v.Encode([]int32{9}, "abcabxa", false))
}

func TestControlTokensComeFromSpecialTextOnly(t *testing.T) {
	v := newVocabulary(nil)
	special := "<s>" + AnswerMark + "</s>"
	require.Equal(t, []int32{bosToken, answerToken, eosToken}, v.Encode(nil, special, true))
	plain := v.Encode(nil, special, false)
	require.Len(t, plain, len(special))
	require.Equal(t, special, v.text(plain))
	require.Empty(t, v.text([]int32{bosToken, answerToken, eosToken}), "control tokens have no text")
}

func TestEveryTextComesBackWhateverThePieces(t *testing.T) {
	texts := rapid.Custom(func(t *rapid.T) string {
		return string(rapid.SliceOfN(rapid.SampledFrom([]byte("ab\x00\xf0\x9f\x98\x80<s>|")), 0, 8).Draw(t, "bytes"))
	})
	rapid.Check(t, func(t *rapid.T) {
		v := newVocabulary(rapid.SliceOfN(texts, 0, 6).Draw(t, "pieces"))
		text := texts.Draw(t, "text")
		require.Equal(t, text, v.text(v.Encode(nil, text, false)))
	})
}

func TestAnAnswerIsItsPiecesAndAnEnd(t *testing.T) {
	v := newVocabulary([]string{"ab", "a", "b"})
	require.Equal(t, []int32{pieceToken + 1, pieceToken + 2, eosToken}, v.answer([]string{"a", "b"}), "not joined to ab")
	require.Equal(t, []int32{pieceToken, byteToken + 'x', eosToken}, v.answer([]string{"abx"}), "spelled")
	require.Equal(t, []int32{eosToken}, v.answer(nil))
}

func TestAConversationIsAskedAsItIsWritten(t *testing.T) {
	var prompt string
	exec := New(Config{Answer: func(p string) []string { prompt = p; return nil }})
	_, err := text(t, NewEngine(t, exec, infer.Options{}), &haiku.Request{Messages: []haiku.Message{
		{Role: haiku.RoleSystem, Content: "be brief"},
		{Role: haiku.RoleUser, Content: "hi" + AnswerMark},
		{Role: haiku.RoleAssistant, Content: "yes?"},
		{Role: haiku.RoleUser, Content: "\n"},
	}})
	require.NoError(t, err)
	require.Equal(t, "system: be brief\nuser: hi"+AnswerMark+"\nassistant: yes?\nuser: \n", prompt)
}
