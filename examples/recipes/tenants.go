package recipes

import (
	"context"

	"github.com/weirhq/weir"
)

// Tenants share workers. A tenant has as many jobs at work or next in line as its share, and its other jobs wait behind these.
// So a job in line has no more than that many jobs of each other tenant before it, however many they have.
type Tenants struct {
	shares  *weir.KeyedConcurrency[string]
	workers *weir.Concurrency
}

// NewTenants has so many workers. shareOf is the share of a tenant, such as by its plan; 0 stands for 2.
func NewTenants(workers int64, shareOf func(tenant string) int64) (*Tenants, error) {
	shares, err := weir.NewKeyedConcurrencyFunc(2, weir.KeyedOptions{Name: "tenant", QueueLimit: 1000}, shareOf)
	if err != nil {
		return nil, err
	}
	all, err := weir.NewConcurrency(workers, weir.Options{Name: "workers", QueueLimit: 10_000})
	if err != nil {
		return nil, err
	}
	return &Tenants{shares, all}, nil
}

// Do runs a job of a tenant when a worker is free. The error is that of the job, or the reason why it was not run.
func (t *Tenants) Do(ctx context.Context, tenant string, job func() error) error {
	return t.shares.Do(ctx, tenant, 1, func() error { return t.workers.Do(ctx, 1, job) })
}
