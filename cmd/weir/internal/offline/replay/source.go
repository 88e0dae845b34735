package replay

import (
	"context"
	"io"
)

// blockSize is how much is read ahead.
const blockSize = 64 << 10

// readAhead reads src in a goroutine, one block ahead, so that reading and decompressing go on beside the simulation, and so
// that the end of ctx ends a Read that waits for a pipe. The goroutine ends with src or ctx, but not before a Read of src
// returns.
func readAhead(ctx context.Context, src io.Reader) io.Reader {
	r, w := io.Pipe()
	stop := context.AfterFunc(ctx, func() { _ = w.CloseWithError(context.Cause(ctx)) }) // it never fails
	go func() {
		defer stop()
		_, err := io.CopyBuffer(w, src, make([]byte, blockSize))
		_ = w.CloseWithError(err) // it never fails
	}()
	return r
}
