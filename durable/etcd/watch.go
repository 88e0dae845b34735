package etcd

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/internal/clock"
)

// Watch implements [durable.Engine].
func (e *Engine) Watch(ctx context.Context) (<-chan durable.Ownership, error) {
	e.made()
	if e.ctx.Err() != nil {
		return nil, durable.ErrEngineClosed
	}
	out := make(chan durable.Ownership, 1)
	watches := e.work.begin(func() {
		both, done := e.either(ctx)
		defer done()
		defer close(out)
		for both.Err() == nil {
			e.watch(both, out)
			clock.Sleep(both, watchPause) // it has failed
		}
	})
	if !watches {
		return nil, durable.ErrEngineClosed
	}
	return out, nil
}

// watchPause is how long to wait after something has failed.
const watchPause = 50 * time.Millisecond

// lookTime is how long it may take to look the owner up.
const lookTime = time.Second

// watch reports the owner until that fails. It asks again as often as a term lasts: a server that stands still, or that
// nothing comes through from, does not even say so, and the next question goes to another one.
func (e *Engine) watch(ctx context.Context, out chan durable.Ownership) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	revision, err := e.tell(ctx, out, 0)
	if err != nil {
		return
	}
	changes := e.client.Watch(ctx, e.elections(), clientv3.WithPrefix(), clientv3.WithRev(revision+1))
	again := time.NewTicker(time.Duration(e.ttl) * time.Second)
	defer again.Stop()
	for {
		revision = 0
		select {
		case r, ok := <-changes:
			if !ok || r.Err() != nil {
				return
			}
			if len(r.Events) == 0 {
				continue
			}
			revision = r.Events[len(r.Events)-1].GetKv().GetModRevision()
		case <-again.C:
		}
		if _, err := e.tell(ctx, out, revision); err != nil {
			return
		}
	}
}

// tell reports the owner, as of a revision that some server has told of if one has it, otherwise as of now, which a majority
// must say.
func (e *Engine) tell(ctx context.Context, out chan durable.Ownership, at int64) (revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	var r *clientv3.GetResponse
	if at > 0 {
		known := append(clientv3.WithFirstCreate(), clientv3.WithSerializable(), clientv3.WithRev(at))
		r, err = e.client.Get(ctx, e.elections(), known...)
	}
	if at == 0 || err != nil {
		if r, err = e.client.Get(ctx, e.elections(), clientv3.WithFirstCreate()...); err != nil {
			return 0, fmt.Errorf("%w", err)
		}
	}
	var o durable.Ownership
	if len(r.Kvs) > 0 {
		o = durable.Ownership{Address: string(r.Kvs[0].GetValue()), Epoch: r.Kvs[0].GetCreateRevision()}
	}
	select {
	case <-out: // it has been overtaken
	default:
	}
	out <- o
	return r.Header.GetRevision(), nil
}
