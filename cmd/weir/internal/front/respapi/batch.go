package respapi

import (
	"sync"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/resp"
	"github.com/weirhq/weir/keyset"
)

// batch is calls in a row that each take permits of one key. They are decided together: see [keyset.Batch].
type batch struct {
	calls     keyset.Batch
	n         int
	decisions [keyset.MostCharges]weir.Decision

	// The call before: what is around its key, and what it asks for. A client mostly repeats itself.
	frame   resp.Frame
	plan    *keyset.Plan
	permits int64
}

var batchPool = sync.Pool{New: func() any { return new(batch) }}

// gather makes a command, whose bytes are in, a part of the batch. It returns false if the command has to be answered alone. It
// must not change until decide has run.
func (c *conn) gather(cmd *command, args [][]byte, in []byte) bool {
	if c.stranger || c.mute.any || c.grown > 0 { // a batch is kept, and must not keep a long buffer
		return false
	}
	plan, n := cmd.plan(args)
	if plan == nil {
		return false
	}
	b := c.batch
	if b == nil {
		b = batchPool.Get().(*batch)
		c.batch = b
	}
	b.frame, b.plan, b.permits = c.parser.Frame(in, cmd.key), plan, n
	c.add(args[cmd.key])
	return true
}

// again makes a command with which in begins a part of the batch, if it is the one before with another key. It returns how many
// bytes the command has, 0 if it may be another one.
func (c *conn) again(in []byte) int {
	if c.batch == nil {
		return 0
	}
	key, n := c.parser.Again(in, c.batch.frame)
	if n > 0 {
		c.add(key)
	}
	return n
}

// add makes a call like the one before, of a key, a part of the batch.
func (c *conn) add(key []byte) {
	b := c.batch
	b.calls.Add(b.plan, key, b.permits, &b.decisions[b.n])
	if b.n++; b.n == len(b.decisions) {
		c.decide()
	}
}

// decide replies to the commands of the batch, if there are any. It must be called before any other reply or a flush, and
// before the bytes of the commands change.
func (c *conn) decide() {
	b := c.batch
	if b == nil {
		return
	}
	b.calls.Take()
	for i := range b.decisions[:b.n] {
		reply(&c.w, &b.decisions[i])
	}
	b.n, c.batch = 0, nil
	b.frame, b.plan = resp.Frame{}, nil // or what is kept would keep the buffer of a connection
	batchPool.Put(b)
}
