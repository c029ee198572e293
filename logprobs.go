package haiku

import (
	"encoding/binary"
	"math"
)

// The auxiliary bytes of a slot, after its delta if it has one, are the
// log-probabilities of the token and its alternatives: for each the id (int32), the log-probability (float32), the
// number of bytes (uint16) and the bytes, all little-endian. vocabularyBytes
// in place of the number says that the vocabulary has them.
const vocabularyBytes = math.MaxUint16

func appendLogprobs(dst []byte, lp *TokenLogprob, limit int) []byte {
	dst = appendLogprob(dst, lp)
	for i := range lp.Top {
		longer := appendLogprob(dst, &lp.Top[i])
		if len(longer) > limit {
			break
		}
		dst = longer
	}
	return dst
}

func appendLogprob(dst []byte, lp *TokenLogprob) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(lp.ID))
	dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(lp.Logprob))
	if lp.Bytes == nil {
		return binary.LittleEndian.AppendUint16(dst, vocabularyBytes)
	}
	b := lp.Bytes[:min(len(lp.Bytes), 256)]
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(b)))
	return append(dst, b...)
}

func decodeLogprobs(aux []byte, v *Vocabulary) TokenLogprob {
	var own TokenLogprob
	for first := true; len(aux) >= 10; first = false {
		lp := TokenLogprob{
			ID:      int32(binary.LittleEndian.Uint32(aux)),
			Logprob: math.Float32frombits(binary.LittleEndian.Uint32(aux[4:])),
		}
		n := int(binary.LittleEndian.Uint16(aux[8:]))
		aux = aux[10:]
		if n == vocabularyBytes {
			lp.Bytes = v.Piece(lp.ID)
		} else {
			lp.Bytes = append([]byte{}, aux[:n]...)
			aux = aux[n:]
		}
		if first {
			own = lp
		} else {
			own.Top = append(own.Top, lp)
		}
	}
	return own
}
