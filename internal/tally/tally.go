// Package tally counts events that several processors see at once.
package tally

import (
	"sync/atomic"
	"unsafe"
)

// Tally counts without making processors wait for one another: each goroutine adds to the counter of its cell. Its zero value
// is 0. It must not be copied.
type Tally struct {
	cells [Cells]struct {
		count atomic.Int64
		_     [56]byte
	}
}

// Cells is how many counters there are.
const Cells = 1 << cellBits

const (
	cellBits  = 4
	stackBits = 11
)

// Cell is the number of the counter of a goroutine, below Cells. It is chosen by where its stack lies, without the bits that
// differ between the frames of a small one.
func Cell() uint {
	var here byte
	stack := uintptr(unsafe.Pointer(&here)) //nolint:gosec // nothing is read through it
	return uint(uint64(stack>>stackBits) * 0x9E3779B97F4A7C15 >> (64 - cellBits))
}

// Add adds 1.
func (t *Tally) Add() { t.cells[Cell()].count.Add(1) }

// AddN adds n.
func (t *Tally) AddN(n int64) { t.cells[Cell()].count.Add(n) }

// Undo takes back an Add.
func (t *Tally) Undo() { t.cells[0].count.Add(-1) }

// Sum is how often Add was called, less what was taken back.
func (t *Tally) Sum() (n int64) {
	for i := range t.cells {
		n += t.cells[i].count.Load()
	}
	return n
}
