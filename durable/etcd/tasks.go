package etcd

import "sync"

// tasks are goroutines that are waited for at the end. None begins after that.
type tasks struct {
	mu    sync.Mutex
	ended bool
	work  sync.WaitGroup
}

// begin runs f in a goroutine, and reports whether it does.
func (t *tasks) begin(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.work.Go(f)
	}
	return !t.ended
}

// wait waits for all that has begun.
func (t *tasks) wait() {
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	t.work.Wait()
}
