package remote

import (
	"context"
	"errors"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/store"
)

// Do implements [store.Home].
func (l *Cluster) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	m, err := l.member()
	if err != nil {
		return store.Hold{}, err
	}
	h, err := m.node.Do(ctx, ask, charges, decisions)
	return h, l.left(err)
}

// Settle implements [store.Home].
func (l *Cluster) Settle(ctx context.Context, h store.Hold, actual []int64) error {
	m, err := l.member()
	if err != nil {
		return err
	}
	return l.left(m.node.Settle(ctx, h, actual))
}

// left is the error of a call, where a node that could not go on and was closed meanwhile is one that is missing.
func (l *Cluster) left(err error) error {
	if errors.Is(err, store.ErrClosed) && l.ctx.Err() == nil {
		return &missing{*l.why.Load()}
	}
	return err
}

// Adjust is [durable.Node.Adjust].
func (l *Cluster) Adjust(ctx context.Context, limit weir.Limit, a durable.Adjustment) (durable.Adjustment, error) {
	m, err := l.member()
	if err != nil {
		return a, err
	}
	made, err := m.node.Adjust(ctx, limit, a)
	return made, l.left(err)
}

// Adjustments is [durable.Node.Adjustments].
func (l *Cluster) Adjustments(ctx context.Context, policy, key string, most int) ([]durable.Adjustment, error) {
	m, err := l.member()
	if err != nil {
		return nil, err
	}
	all, err := m.node.Adjustments(ctx, policy, key, most)
	return all, l.left(err)
}
