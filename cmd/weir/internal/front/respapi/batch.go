package respapi

import (
	"sync"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
)

// batch is calls in a row that each take permits of one key. They are decided together: see [keyset.Step.TakeEach].
type batch struct {
	step      keyset.Step
	n         int
	decisions [keyset.MostCharges]weir.Decision
}

var batchPool = sync.Pool{New: func() any { return new(batch) }}

// gather makes a command a part of the batch. It returns false if the command has to be answered alone. Its key must not change
// until decide has run.
func (c *conn) gather(cmd *command, args [][]byte) bool {
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
	b.step.Add(plan, args[cmd.key], n, &b.decisions[b.n])
	if b.n++; b.n == len(b.decisions) {
		c.decide()
	}
	return true
}

// decide replies to the commands of the batch, if there are any. It must be called before any other reply or a flush, and
// before the bytes of the commands change.
func (c *conn) decide() {
	b := c.batch
	if b == nil {
		return
	}
	b.step.TakeEach()
	for i := range b.decisions[:b.n] {
		reply(&c.w, &b.decisions[i])
	}
	b.n, c.batch = 0, nil
	batchPool.Put(b)
}
