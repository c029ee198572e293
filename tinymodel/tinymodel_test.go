package tinymodel

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheModelIsTheOneWhoseProvenanceIsWritten(t *testing.T) {
	note, err := os.ReadFile("PROVENANCE.md")
	require.NoError(t, err)
	sum := sha256.Sum256(GGUF())
	require.Contains(t, string(note), hex.EncodeToString(sum[:]))
	require.Contains(t, string(note), "964,288 bytes")
	require.Len(t, GGUF(), 964288)
}
