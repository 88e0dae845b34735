package durable

import (
	"context"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// TryAcquire asks for permits without waiting for them, whatever the Wait of the request is: see [Node.Acquire].
func (n *Node) TryAcquire(ctx context.Context, r Request) Answer {
	r.Wait = 0
	return n.Acquire(ctx, r)
}

// Adjust is [Owner.Adjust], whoever the owner is.
func (n *Node) Adjust(ctx context.Context, l weir.Limit, a Adjustment) (Adjustment, error) {
	if owner := n.Owner(); owner != nil {
		return owner.Adjust(ctx, l, a)
	}
	return a, store.ErrUnavailable
}

// Adjustments is [Owner.Adjustments], whoever the owner is.
func (n *Node) Adjustments(ctx context.Context, policy, key string, most int) ([]Adjustment, error) {
	if owner := n.Owner(); owner != nil {
		return owner.Adjustments(ctx, policy, key, most)
	}
	return nil, store.ErrUnavailable
}

// Inspect is [Owner.Inspect], whoever the owner is.
func (n *Node) Inspect(ctx context.Context, policy, key string, l weir.Limit) (weir.Decision, error) {
	if owner := n.Owner(); owner != nil {
		return owner.Inspect(ctx, policy, key, l)
	}
	return weir.Decision{}, store.ErrUnavailable
}
