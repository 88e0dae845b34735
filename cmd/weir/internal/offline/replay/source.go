package replay

import (
	"context"
	"io"
)

// readAhead is a source that is read by a goroutine, one block ahead, so that reading and decompressing go on beside the
// simulation, and so that the end of a context ends a Read that waits for a pipe.
type readAhead struct {
	ctx    context.Context //nolint:containedctx // io.Reader has none
	blocks chan block
	free   chan []byte
	now    block
	rest   []byte
}

type block struct {
	data []byte
	err  error
}

const blockSize = 256 << 10

// newReadAhead starts reading src. The goroutine ends with src or with ctx, but not before a Read of src returns.
func newReadAhead(ctx context.Context, src io.Reader) *readAhead {
	r := &readAhead{ctx: ctx, blocks: make(chan block), free: make(chan []byte, 2)}
	r.free <- make([]byte, blockSize)
	r.free <- make([]byte, blockSize)
	go r.fill(src)
	return r
}

func (r *readAhead) fill(src io.Reader) {
	for {
		var data []byte
		select {
		case data = <-r.free:
		case <-r.ctx.Done():
			return
		}
		n, err := src.Read(data[:blockSize])
		select {
		case r.blocks <- block{data[:n], err}:
		case <-r.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// Read implements io.Reader. Its error is that of the context once it has ended.
func (r *readAhead) Read(b []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.now.err != nil {
			return 0, r.now.err
		}
		if r.now.data != nil {
			r.free <- r.now.data[:blockSize]
		}
		select {
		case r.now = <-r.blocks:
			r.rest = r.now.data
		case <-r.ctx.Done():
			r.now = block{err: context.Cause(r.ctx)}
		}
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
