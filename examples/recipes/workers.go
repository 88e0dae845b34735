package recipes

import (
	"context"
	"errors"
	"sync"

	"github.com/weirhq/weir"
)

// RunAll runs all jobs, atOnce of them at a time. Those that have not begun when ctx ends are not run.
func RunAll(ctx context.Context, atOnce int64, jobs []func() error) error {
	workers, err := weir.NewConcurrency(atOnce, weir.Options{QueueLimit: int64(len(jobs))})
	if err != nil {
		return err
	}
	errs := make([]error, len(jobs))
	var all sync.WaitGroup
	for i, job := range jobs {
		all.Go(func() { errs[i] = workers.Do(ctx, 1, job) })
	}
	all.Wait()
	return errors.Join(errs...)
}
