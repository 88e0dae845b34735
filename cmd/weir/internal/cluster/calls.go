package cluster

import (
	"context"

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
	return m.store.Do(ctx, ask, charges, decisions) //nolint:wrapcheck // it is ours
}

// Settle implements [store.Home].
func (l *Cluster) Settle(ctx context.Context, h store.Hold, actual []int64) error {
	m, err := l.member()
	if err != nil {
		return err
	}
	return m.store.Settle(ctx, h, actual) //nolint:wrapcheck // it is ours
}

// Adjust is [durable.Node.Adjust].
func (l *Cluster) Adjust(ctx context.Context, limit weir.Limit, a durable.Adjustment) (durable.Adjustment, error) {
	m, err := l.member()
	if err != nil {
		return a, err
	}
	return m.node.Adjust(ctx, limit, a) //nolint:wrapcheck // it is ours
}

// Adjustments is [durable.Node.Adjustments].
func (l *Cluster) Adjustments(ctx context.Context, policy, key string, most int) ([]durable.Adjustment, error) {
	m, err := l.member()
	if err != nil {
		return nil, err
	}
	return m.node.Adjustments(ctx, policy, key, most) //nolint:wrapcheck // it is ours
}
