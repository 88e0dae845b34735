// Package tally counts events that several processors see at once.
package tally

import (
	"sync/atomic"
	"unsafe"
)

// Tally counts without making processors wait for one another: each goroutine adds to one of several counters, chosen by
// where its stack lies. Its zero value is 0. It must not be copied.
type Tally struct {
	cells [16]struct {
		count atomic.Int64
		_     [56]byte
	}
}

// Add adds 1.
func (t *Tally) Add() {
	var here byte
	stack := uintptr(unsafe.Pointer(&here)) //nolint:gosec // nothing is read through it
	t.cells[uint64(stack)*0x9E3779B97F4A7C15>>60].count.Add(1)
}

// Undo takes back an Add.
func (t *Tally) Undo() { t.cells[0].count.Add(-1) }

// Sum is how often Add was called, less what was taken back.
func (t *Tally) Sum() (n int64) {
	for i := range t.cells {
		n += t.cells[i].count.Load()
	}
	return n
}
