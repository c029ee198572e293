package haiku

import (
	"context"
	"encoding/hex"
	"strings"
)

type traceKey struct{}

// traceContext is a W3C trace context as the ring's head carries it.
type traceContext struct {
	trace [16]byte
	span  [8]byte
	flags byte
}

func traceFrom(ctx context.Context) traceContext {
	t, _ := ctx.Value(traceKey{}).(traceContext)
	return t
}

// parseTraceparent reads a traceparent header of version 00 as W3C Trace
// Context defines it: 00-<32 hex>-<16 hex>-<2 hex>, in lower case, with
// neither id all zero.
func parseTraceparent(h string) (t traceContext, ok bool) {
	if len(h) != 55 || !strings.HasPrefix(h, "00-") || h[35] != '-' || h[52] != '-' || strings.ToLower(h) != h {
		return t, false
	}
	var flags [1]byte
	for _, part := range []struct {
		dst []byte
		hex string
	}{{t.trace[:], h[3:35]}, {t.span[:], h[36:52]}, {flags[:], h[53:55]}} {
		if _, err := hex.Decode(part.dst, []byte(part.hex)); err != nil {
			return traceContext{}, false
		}
	}
	t.flags = flags[0]
	return t, t.trace != [16]byte{} && t.span != [8]byte{}
}

// TraceparentFrom returns the W3C traceparent of the request that ctx belongs
// to, for a server that is asked on its behalf, or "" where it came without a
// valid one.
func TraceparentFrom(ctx context.Context) string {
	t := traceFrom(ctx)
	if t.trace == [16]byte{} {
		return ""
	}
	b := make([]byte, 0, 55)
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, t.trace[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, t.span[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, []byte{t.flags})
	return string(b)
}
