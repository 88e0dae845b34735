package respapi

import (
	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/resp"
	"github.com/weirhq/weir/keyset"
)

// batch is calls in a row that each take permits of one key. They are decided together: see [keyset.Batch].
type batch struct {
	calls     keyset.Batch
	n         int
	decisions [keyset.MostCharges]weir.Decision

	// The call before, of this client or of another one: what is around its key, and what it asks for. Clients mostly repeat
	// themselves and each other.
	frame   resp.Frame
	text    [mostFrame]byte // of frame
	plan    *keyset.Plan
	permits int64
}

// mostFrame is how long a frame is at most: that of a call with all its numbers is not longer, unless they have zeros in front.
const mostFrame = 192

// mayGather reports whether commands may be part of a batch.
func (c *conn) mayGather() bool {
	return !c.stranger && !c.mute.any && c.grown == 0 // a batch is kept, and must not keep a long buffer
}

// begun returns the batch of the connection.
func (c *conn) begun() *batch {
	if c.batch == nil {
		c.batch = c.s.batches.Get().(*batch)
	}
	return c.batch
}

// gather makes a command, whose bytes are in, a part of the batch. It returns false if the command has to be answered alone. It
// must not change until decide has run.
func (c *conn) gather(cmd *command, args [][]byte, in []byte) bool {
	if !c.mayGather() {
		return false
	}
	plan, n := cmd.plan(args)
	if plan == nil {
		return false
	}
	b := c.begun()
	b.frame, b.plan, b.permits = c.parser.Frame(in, cmd.key).In(b.text[:]), plan, n
	c.add(args[cmd.key])
	return true
}

// again makes a command with which in begins a part of the batch, if it is the one before with another key. It returns how many
// bytes the command has, 0 if it may be another one.
func (c *conn) again(in []byte) int {
	if c.batch == nil && (len(in) == 0 || c.last == nil || c.last.plan == nil || !c.mayGather()) {
		return 0
	}
	key, n := c.parser.Again(in, c.begun().frame)
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
	if b.n > 0 {
		b.calls.Take()
		for i := range b.decisions[:b.n] {
			reply(&c.w, &b.decisions[i])
		}
		b.n = 0
	}
	c.batch = nil
	c.s.batches.Put(b)
}
