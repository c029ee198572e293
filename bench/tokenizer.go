//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/tinymodel"
)

// sharedVocabularies is where vocabularies of real models lie where they are
// available.
const sharedVocabularies = "../shared/data/vocab"

// prose is English with what texts have besides words.
const prose = "The old pond was still when I came by at 6:30 that morning; \"don't wake the frogs\", she'd said. " +
	"It cost $12.50 — a fair price for silence, wasn't it? Rain fell.\n\nOn the 2nd day we walked 14 km through the reeds, and nobody spoke.\n"

// tokenizerTable shows how fast text becomes tokens and back.
func tokenizerTable(s settings) error {
	size := 1 << 20
	if s.quick {
		size = 1 << 16
	}
	texts := []struct{ name, unit string }{{"prose", prose}, {"one letter", "a"}, {"spaces", " "}, {"emoji", "🦙"}, {"digits", "7"}}
	fmt.Printf("| vocabulary | kind |")
	for _, text := range texts {
		fmt.Printf(" %s |", text.name)
	}
	fmt.Printf(" decode |\n| --- | --- |%s\n", strings.Repeat(" ---: |", len(texts)+1))
	files, err := vocabularies()
	if err != nil {
		return err
	}
	for _, v := range files {
		tok, err := infer.TokenizerOf(v.file)
		if err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		fmt.Printf("| %s | %s |", v.name, v.kind)
		for _, text := range texts {
			input := strings.Repeat(text.unit, size/len(text.unit))
			fmt.Printf(" %.1f |", best(s, func() (float64, error) { return encodeRate(tok, input), nil }))
		}
		ids := tok.Encode(nil, strings.Repeat(prose, size/len(prose)), false)
		fmt.Printf(" %.0f |\n", best(s, func() (float64, error) { return decodeBytes(tok, ids), nil }))
		if err := v.file.Close(); err != nil {
			return err
		}
	}
	if len(files) == 1 {
		fmt.Printf("\nOther kinds are left out: there are no vocabularies in %s.\n", sharedVocabularies)
	}
	return nil
}

type namedVocabulary struct {
	name, kind string
	file       *gguf.File
}

// vocabularies returns the embedded model's and those of real ones.
func vocabularies() ([]namedVocabulary, error) {
	tiny, err := gguf.Parse(tinymodel.GGUF())
	if err != nil {
		return nil, err
	}
	all := []namedVocabulary{{"haiku-tiny", "SentencePiece", tiny}}
	for _, v := range []namedVocabulary{
		{"llama-spm", "SentencePiece", nil}, {"gpt-2", "byte-level BPE", nil}, {"falcon", "byte-level BPE", nil},
		{"deepseek-coder", "byte-level BPE", nil}, {"bert-bge", "WordPiece", nil},
	} {
		path := filepath.Join(sharedVocabularies, "ggml-vocab-"+v.name+".gguf")
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if v.file, err = gguf.Open(path); err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// encodeRate is in MB/s.
func encodeRate(tok infer.Tokenizer, text string) float64 {
	start, bytes := time.Now(), 0
	var ids []int32
	for time.Since(start) < 200*time.Millisecond {
		ids = tok.Encode(ids[:0], text, false)
		bytes += len(text)
	}
	return float64(bytes) / 1e6 / time.Since(start).Seconds()
}

// decodeBytes is in MB/s.
func decodeBytes(tok infer.Tokenizer, ids []int32) float64 {
	start, bytes := time.Now(), 0
	pieces := tok.Pieces()
	var out []byte
	for time.Since(start) < 200*time.Millisecond {
		out = out[:0]
		for _, id := range ids {
			out = append(out, pieces[id]...)
		}
		bytes += len(out)
	}
	return float64(bytes) / 1e6 / time.Since(start).Seconds()
}
