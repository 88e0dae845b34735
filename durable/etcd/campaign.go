package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirhq/weir/durable"
)

// Campaign implements [durable.Engine].
func (e *Engine) Campaign(ctx context.Context, address string) (durable.Term, error) { //nolint:ireturn // that of the interface
	e.made()
	if e.ctx.Err() != nil {
		return nil, durable.ErrEngineClosed
	}
	if ctx.Err() != nil {
		return nil, e.campaignError(ctx.Err())
	}
	ctx, done := e.either(ctx)
	defer done()
	for {
		t, err := e.candidate(ctx)
		if err != nil {
			return nil, e.campaignError(err)
		}
		if err = t.win(ctx, address); err == nil {
			if !e.work.begin(t.guard) {
				return nil, durable.ErrEngineClosed
			}
			return t, nil
		}
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		_ = t.Resign(short) // or it ends by itself
		cancel()
		if !errors.Is(err, durable.ErrDeposed) || e.ctx.Err() != nil {
			return nil, e.campaignError(err)
		}
		// The lease was lost before it was elected, which costs it its place in the line and nothing else.
	}
}

// grantTime is how long it may take to get a lease: what gets lost on its way to a leader that dies would be waited for a lot
// longer.
const grantTime = 2 * time.Second

// candidate is a term that has a lease, and is not elected yet.
func (e *Engine) candidate(ctx context.Context) (*term, error) {
	ctx, cancel := context.WithTimeout(ctx, grantTime)
	defer cancel()
	begin := now()
	lease, err := e.client.Grant(ctx, e.ttl)
	if err != nil {
		return nil, fmt.Errorf("%w", err)
	}
	t := &term{engine: e, lease: lease.ID, ttl: time.Duration(lease.TTL) * time.Second, done: make(chan struct{})}
	t.alive(begin, lease.TTL)
	t.ctx, t.cancel = context.WithCancel(e.ctx)
	if !e.work.begin(t.live) {
		t.cancel()
		return nil, durable.ErrEngineClosed
	}
	return t, nil
}

func (e *Engine) campaignError(err error) error {
	if e.ctx.Err() != nil {
		return durable.ErrEngineClosed
	}
	return fmt.Errorf("weir: the campaign has failed: %w", err)
}

// win waits until the key of this candidate is the oldest, and its lease is known to live.
func (t *term) win(ctx context.Context, address string) error {
	t.key = fmt.Sprintf("%s%x", t.engine.elections(), t.lease)
	if err := t.enter(ctx, address); err != nil {
		return err
	}
	revision := int64(0) // as of which the candidates before this one are looked up, 0 for now
	for {
		before, at, err := t.before(ctx, revision)
		switch {
		case err != nil:
			revision, err = 0, t.again(ctx, err)
		case before == "":
			t.floor.Store(at)
			return t.begin(ctx)
		default:
			revision, err = t.gone(ctx, before, at+1)
		}
		if err != nil {
			return err
		}
	}
}

// enter puts the key of this candidate, once, even if it is not known whether it was put.
func (t *term) enter(ctx context.Context, address string) error {
	for {
		short, cancel := context.WithTimeout(ctx, lookTime)
		r, err := t.engine.client.Txn(short).If(clientv3.Compare(clientv3.CreateRevision(t.key), "=", 0)).
			Then(clientv3.OpPut(t.key, address, clientv3.WithLease(t.lease))).
			Else(clientv3.OpGet(t.key, clientv3.WithKeysOnly())).Commit()
		cancel()
		if err == nil {
			t.epoch = r.Header.GetRevision()
			if !r.Succeeded {
				t.epoch = r.Responses[0].GetResponseRange().GetKvs()[0].GetCreateRevision()
			}
			return nil
		}
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			t.over()
			return durable.ErrDeposed
		}
		err = t.again(ctx, err)
		if err != nil {
			return err
		}
	}
}

// before is the key of the last candidate before this one, if there is any, as of a revision that some server has told of, or as
// of now if that is 0, and as of which revision that is. Candidates before this one can only become fewer: once there is none,
// there never is, and no majority need be asked.
func (t *term) before(ctx context.Context, revision int64) (key string, at int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	last := append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(t.epoch-1))
	var r *clientv3.GetResponse
	if at = revision; at > 0 {
		r, err = t.engine.client.Get(ctx, t.engine.elections(),
			append(last, clientv3.WithSerializable(), clientv3.WithRev(at))...)
	}
	if at == 0 || err != nil { // that server does not know of it yet, or any more
		if r, err = t.engine.client.Get(ctx, t.engine.elections(), last...); err != nil {
			return "", 0, fmt.Errorf("%w", err)
		}
		at = r.Header.GetRevision()
	}
	if len(r.Kvs) > 0 {
		key = string(r.Kvs[0].GetKey())
		if r.Kvs[0].GetLease() == 0 && t.engine.damaged != nil {
			t.engine.damaged(fmt.Errorf("%w: the key %.80q of an owner has no lease", durable.ErrDamaged, key))
		}
	}
	return key, at, nil
}

// again waits for a moment after a failure, unless there is no use in trying again.
func (t *term) again(ctx context.Context, err error) error {
	if permanent(err) {
		return fmt.Errorf("%w", err)
	}
	return t.pause(ctx)
}

// begin begins the term of a candidate that is elected, once the server has told that its lease lives: it may have heard of
// nothing for as long as there was no leader, while the lease was kept.
func (t *term) begin(ctx context.Context) error {
	for {
		t.mu.Lock()
		t.elected = time.Until(t.Expires()) > 0
		elected := t.elected
		t.mu.Unlock()
		if elected {
			return nil
		}
		if err := t.pause(ctx); err != nil {
			return err
		}
	}
}

// gone waits until a key is, and returns as of which revision; or until it is not known any more whether it is, for whatever
// reason: then it must be looked up again, and the revision is 0.
func (t *term) gone(ctx context.Context, key string, revision int64) (int64, error) {
	watching, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	watch := t.engine.client.Watch(watching, key, clientv3.WithRev(revision))
	for {
		select {
		case r, ok := <-watch:
			if ctx.Err() != nil {
				return 0, ctx.Err() //nolint:wrapcheck // of the caller
			}
			if !ok || r.Err() != nil { // such as ErrCompacted, or that there is no leader
				return 0, t.pause(ctx)
			}
			for _, event := range r.Events {
				if event.GetType() == mvccpb.Event_DELETE {
					return event.GetKv().GetModRevision(), nil
				}
			}
		case <-t.done:
			return 0, durable.ErrDeposed
		}
	}
}

// pause waits for a moment, after which something can be tried again.
func (t *term) pause(ctx context.Context) error {
	timer := time.NewTimer(watchPause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // of the caller
	case <-t.done:
		return durable.ErrDeposed
	}
}

// guard ends the term if its key, or its lease, is deleted by hand: otherwise that would be noticed by the next write only.
func (t *term) guard() {
	for t.ctx.Err() == nil {
		own, err := t.engine.client.Get(t.ctx, t.key)
		switch {
		case err != nil:
		case len(own.Kvs) == 0 || own.Kvs[0].GetCreateRevision() != t.epoch:
			t.over()
			return
		default:
			if _, err := t.gone(t.ctx, t.key, own.Header.GetRevision()+1); err != nil {
				return
			}
			continue
		}
		if t.pause(t.ctx) != nil {
			return
		}
	}
}
