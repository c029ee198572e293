package kserve

import "errors"

// ErrNotReady says that the server, or the model on it, is not ready. It is found
// by errors.Is in what [Engine.Ready] and [Engine.Live] return. The kinds of
// failure that Generate meets are those of package upstream.
var ErrNotReady = errors.New("kserve: not ready")
