// Package heap keeps items of which the first is wanted, and of which each can leave from its place.
package heap

// Item is what a [Heap] keeps.
type Item[T any] interface {
	// Before reports whether the item comes out before another one.
	Before(other T) bool
	// Placed is called with the index of the item in the heap whenever that changes: -1 once it is out.
	Placed(at int)
}

// Heap keeps items so that none comes before the one at index 0. The zero value is empty. No item may change its order but
// through Fix.
type Heap[T Item[T]] []T

// arity is how many children an item has: four lie in one or two cache lines.
const arity = 4

// Push adds an item.
func (h *Heap[T]) Push(item T) {
	*h = append(*h, item)
	h.up(len(*h)-1, item)
}

// Pop takes out the first item. The heap must not be empty.
func (h *Heap[T]) Pop() T { return h.Remove(0) }

// Remove takes out the item at an index.
func (h *Heap[T]) Remove(at int) T {
	var none T
	all := *h
	end := len(all) - 1
	item, last := all[at], all[end]
	all[end] = none
	*h = all[:end]
	if at < end {
		h.place(at, last)
	}
	item.Placed(-1)
	return item
}

// Fix moves the item at an index, whose order has changed, to its place.
func (h *Heap[T]) Fix(at int) { h.place(at, (*h)[at]) }

// place puts an item where it belongs, above or below an index that is free.
func (h *Heap[T]) place(at int, item T) {
	if at > 0 && item.Before((*h)[(at-1)/arity]) {
		h.up(at, item)
		return
	}
	h.down(at, item)
}

func (h *Heap[T]) up(at int, item T) {
	all := *h
	for at > 0 {
		parent := (at - 1) / arity
		if !item.Before(all[parent]) {
			break
		}
		all[at] = all[parent]
		all[at].Placed(at)
		at = parent
	}
	all[at] = item
	item.Placed(at)
}

func (h *Heap[T]) down(at int, item T) {
	all := *h
	for {
		child := at*arity + 1
		if child >= len(all) {
			break
		}
		first := child
		for c := child + 1; c < min(child+arity, len(all)); c++ {
			if all[c].Before(all[first]) {
				first = c
			}
		}
		if !all[first].Before(item) {
			break
		}
		all[at] = all[first]
		all[at].Placed(at)
		at = first
	}
	all[at] = item
	item.Placed(at)
}
