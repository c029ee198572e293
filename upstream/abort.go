package upstream

import (
	"context"
	"io"
	"net/http"
	"time"
)

// abortWithin bounds the call that aborts a request.
const abortWithin = 2 * time.Second

// abort tells an SGLang engine to end the request rid. It does not wait for it,
// and what comes of it is nobody's news: the connection is closed as well.
func (e *Engine) abort(rid string, header http.Header) {
	h := header.Clone()
	h.Del("Accept")
	var b body
	b.open()
	b.str("rid", rid)
	b.close()
	e.beside(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, abortWithin)
		defer cancel()
		c := &call{method: http.MethodPost, root: true, path: "/abort_request", header: h, body: b.b}
		resp, err := e.transport.RoundTrip(c.request(ctx, e))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxErrorBytes))
		_ = resp.Body.Close()
	})
}
