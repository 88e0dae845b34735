package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/internal/clock"
)

// Options configure an [Engine].
type Options struct {
	// Prefix is the beginning of the keys of everything that is kept. Default: "/weir/".
	Prefix string
	// TTL is for how long an owner that has died is still the owner, and nothing is allowed: in whole seconds from 1 s to 1 h.
	// The server may have a longer minimum. Default: 1 s.
	TTL time.Duration
}

// Engine implements [durable.Engine] over etcd. The owner is the key with the lowest revision of creation below a prefix, which
// lives as long as a lease. That revision is the epoch, and every write is a transaction that requires the key to be there.
type Engine struct {
	client *clientv3.Client
	prefix string
	ttl    int64
	ctx    context.Context //nolint:containedctx // until Close
	end    context.CancelFunc
	work   tasks
	// damaged is called with each record, or key of an owner, that is not what was written. It is nil where nothing can be done
	// about it.
	damaged func(error)
	// leads is closed when the servers have another leader: see etcdserver. It is nil where they are in other processes.
	leads func() <-chan struct{}
}

var _ durable.Engine = (*Engine)(nil)

const defaultPrefix = "/weir/"

// New returns an engine over a client, which stays the caller's. The error is an *[weir.OptionError].
func New(client *clientv3.Client, o Options) (*Engine, error) {
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if o.TTL == 0 {
		o.TTL = time.Second
	}
	if client == nil {
		return nil, &weir.OptionError{Option: "New.client", Value: "nil", Accepted: "a client"}
	}
	if o.TTL < time.Second || o.TTL > time.Hour || o.TTL%time.Second != 0 {
		return nil, &weir.OptionError{Option: "Options.TTL", Value: o.TTL.String(), Accepted: "whole seconds from 1s to 1h"}
	}
	if !strings.HasSuffix(o.Prefix, "/") || len(o.Prefix) > 256 {
		return nil, &weir.OptionError{
			Option: "Options.Prefix", Value: fmt.Sprintf("%.80q", o.Prefix), Accepted: "at most 256 bytes that end in /",
		}
	}
	e := &Engine{client: client, prefix: o.Prefix, ttl: int64(o.TTL / time.Second)}
	e.ctx, e.end = context.WithCancel(context.Background())
	return e, nil
}

func (e *Engine) elections() string         { return e.prefix + "owner/" }
func (e *Engine) record(name string) string { return e.prefix + "state/" + name }

// made panics if e is a zero Engine.
func (e *Engine) made() {
	if e.client == nil {
		panic("weir: etcd: zero Engine: make it by New")
	}
}

// Close implements [durable.Engine].
func (e *Engine) Close() error {
	e.made()
	e.end()
	e.work.wait()
	return nil
}

// either is a context that ends with ctx or with the engine.
func (e *Engine) either(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(e.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// errLeaderLost is that it is not known what became of a write.
var errLeaderLost = errors.New("the servers have another leader than the one that was asked")

// underOneLeader is a context that also ends when the servers have another leader.
func (e *Engine) underOneLeader(ctx context.Context) (context.Context, func()) {
	if e.leads == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	another := e.leads()
	e.work.begin(func() {
		select {
		case <-another:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, cancel
}

// instant is a moment by both clocks of this machine: the one that never jumps, and stands still while the machine is suspended,
// and the one that goes on, and may be set.
type instant struct{ steady, wall int64 }

// base anchors monotonic times.
var base = time.Now() //nolint:gochecknoglobals // a constant

func now() instant {
	t := time.Now()
	return instant{int64(t.Sub(base)), t.UnixNano()}
}

// term implements [durable.Term].
type term struct {
	engine *Engine
	lease  clientv3.LeaseID
	ttl    time.Duration
	key    string
	epoch  int64

	// floor is the revision as of which records can be read from a single server: everything that was written before the term,
	// and that this term has written, is older. If it is not known what was written, it is unknown.
	floor  atomic.Int64
	heard  atomic.Pointer[sign] // of the server, nil once the term has ended
	ctx    context.Context      //nolint:containedctx // until the term has ended
	cancel context.CancelFunc
	once   sync.Once
	done   chan struct{}

	mu      sync.Mutex
	elected bool // it ends when it has expired; before, it ends when the server says so
}

// sign is a sign of life to which the server has responded: when it was sent, and for how long it counts.
type sign struct {
	sent instant
	ttl  int64
}

// alive takes in a sign of life. What counts is when it was sent, as the server cannot have counted from earlier. A server that
// says more than it has granted is mistaken, and the next leader knows better.
func (t *term) alive(sent instant, seconds int64) {
	t.heard.Store(&sign{sent, min(seconds*int64(time.Second), int64(t.ttl))})
}

// over ends the term.
func (t *term) over() {
	t.once.Do(func() {
		t.heard.Store(nil)
		close(t.done)
		t.cancel()
	})
}

// expired reports whether the term must end, as its owner cannot know any more that no other is elected.
func (t *term) expired() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.elected && time.Until(t.Expires()) <= 0
}

// live renews the lease, and ends the term if that has failed for too long, or, as long as it is that of a candidate, if the
// lease is gone: a server without a leader keeps all leases. A request without a response is given up after two fifths of the
// lease, so that the next one can go to another server.
func (t *term) live() {
	defer t.over()
	lease := renewer{client: t.engine.client, lease: t.lease}
	defer lease.close()
	pause := t.ttl / 5       //nolint:mnd // so that a lost packet or two do no harm
	attempt := t.ttl * 2 / 5 //nolint:mnd // so that there can be a second one
	for {
		sent := now()
		limit := attempt
		if left := time.Until(t.Expires()); left > 0 {
			limit = min(limit, left)
		}
		ctx, cancel := context.WithTimeout(t.ctx, limit)
		seconds, err := lease.renew(ctx)
		cancel()
		switch {
		case t.ctx.Err() != nil, errors.Is(err, rpctypes.ErrLeaseNotFound):
			return
		case err == nil:
			t.alive(sent, seconds)
		}
		if t.expired() {
			return
		}
		rest := pause
		if left := time.Until(t.Expires()); left > 0 {
			rest = min(pause, left)
		}
		timer := time.NewTimer(rest)
		select {
		case <-timer.C:
		case <-t.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// Epoch implements [durable.Term].
func (t *term) Epoch() int64 { return t.epoch }

// Expires implements [durable.Term]. Time during which the machine was suspended counts, as far as the two clocks of the machine
// show it. A machine whose clocks both stopped, as a virtual one that was moved, may think itself the owner for longer. It can
// then allow only what its records are ahead, which the next owner counts as taken; what it writes is refused.
func (t *term) Expires() time.Time {
	h := t.heard.Load()
	if h == nil {
		return time.Time{}
	}
	n := now()
	suspended := max(0, (n.wall-h.sent.wall)-(n.steady-h.sent.steady))
	return base.Add(time.Duration(h.sent.steady + h.ttl - suspended))
}

// Done implements [durable.Term].
func (t *term) Done() <-chan struct{} { return t.done }

// unknown is a floor that no server reaches.
const unknown = math.MaxInt64

// Load implements [durable.Term]. It asks one server, which must have all that matters; otherwise a majority must say what there
// is.
func (t *term) Load(ctx context.Context, name string) (value []byte, revision int64, err error) {
	if ctx.Err() != nil {
		return nil, 0, t.failed("read", ctx.Err())
	}
	var r *clientv3.GetResponse
	floor := t.floor.Load()
	if floor != unknown {
		r, err = t.engine.client.Get(ctx, t.engine.record(name), clientv3.WithSerializable())
	}
	if floor == unknown || err != nil || r.Header.GetRevision() < floor {
		r, err = t.engine.client.Get(ctx, t.engine.record(name))
	}
	if err != nil {
		return nil, 0, t.failed("read", err)
	}
	if len(r.Kvs) == 0 {
		return nil, 0, nil
	}
	value = r.Kvs[0].GetValue()
	if err := durable.CheckValue(name, value); errors.Is(err, durable.ErrDamaged) && t.engine.damaged != nil {
		t.engine.damaged(fmt.Errorf("the record %.80q: %w", name, err)) // another node may have it as it was
	}
	return value, r.Kvs[0].GetModRevision(), nil
}

// List implements [durable.Term].
func (t *term) List(ctx context.Context, prefix string, most int) ([]durable.Named, error) {
	if most <= 0 {
		return nil, nil
	}
	return t.read(ctx, t.engine.record(prefix), clientv3.WithPrefix(), clientv3.WithLimit(int64(most)),
		clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend))
}

// read reads the records from a key on that the options say.
func (t *term) read(ctx context.Context, from string, options ...clientv3.OpOption) ([]durable.Named, error) {
	if ctx.Err() != nil {
		return nil, t.failed("read", ctx.Err())
	}
	r, err := t.engine.client.Get(ctx, from, options...)
	if err != nil {
		return nil, t.failed("read", err)
	}
	all := make([]durable.Named, 0, len(r.Kvs))
	for _, kv := range r.Kvs {
		all = append(all, t.named(kv))
	}
	return all, nil
}

func (t *term) named(kv *mvccpb.KeyValue) durable.Named {
	name := strings.TrimPrefix(string(kv.GetKey()), t.engine.record(""))
	return durable.Named{Name: name, Value: kv.GetValue(), Revision: kv.GetModRevision()}
}

// Page implements [durable.Term].
func (t *term) Page(ctx context.Context, prefix, after string, most int) ([]durable.Named, error) {
	if most <= 0 {
		return nil, nil
	}
	from := t.engine.record(prefix)
	if after >= prefix {
		from = t.engine.record(after) + "\x00"
	}
	return t.read(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(t.engine.record(prefix))),
		clientv3.WithLimit(int64(most)))
}

// Store implements [durable.Term].
func (t *term) Store(ctx context.Context, writes []durable.Write) (revision int64, err error) {
	err = durable.CheckWrites(writes)
	if err != nil {
		return 0, err //nolint:wrapcheck // it is ours
	}
	switch { // a server in this process may be quicker than it looks at the context
	case t.ctx.Err() != nil:
		return 0, t.ended()
	case ctx.Err() != nil:
		return 0, t.failed("written", ctx.Err())
	}
	conditions := make([]clientv3.Cmp, 0, 1+len(writes))
	puts := make([]clientv3.Op, 0, len(writes))
	conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(t.key), "=", t.epoch))
	for i := range writes {
		w := &writes[i]
		key := t.engine.record(w.Name)
		conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(key), "=", w.Revision))
		if w.Value == nil {
			puts = append(puts, clientv3.OpDelete(key))
			continue
		}
		puts = append(puts, clientv3.OpPut(key, string(w.Value)))
	}
	found := []clientv3.Op{clientv3.OpGet(t.key, clientv3.WithKeysOnly())}
	var r *clientv3.TxnResponse
	lost := false // what was proposed to a leader that is none any more, or it was written late
	for {
		try, end := t.engine.underOneLeader(ctx)
		r, err = t.engine.client.Txn(try).If(conditions...).Then(puts...).Else(found...).Commit()
		anew := try.Err() != nil && ctx.Err() == nil
		if end(); err == nil {
			break
		}
		if anew { // etcd itself waits for seconds: it is the same write, of which the conditions let only one through
			if t.floor.Store(unknown); !lost {
				lost, found = true, append(found, t.engine.reads(writes)...)
			}
			continue
		}
		never := unproposed(err)
		if !never {
			t.floor.Store(unknown)
		}
		if !never || t.pause(ctx) != nil {
			return 0, t.failed("written", err)
		}
	}
	if r.Succeeded {
		revision = r.Header.GetRevision()
		for floor := t.floor.Load(); floor < revision && !t.floor.CompareAndSwap(floor, revision); {
			floor = t.floor.Load()
		}
		return revision, nil
	}
	if keys := r.Responses[0].GetResponseRange().GetKvs(); len(keys) > 0 && keys[0].GetCreateRevision() == t.epoch {
		if revision, ok := written(writes, r.Responses[1:]); ok {
			return revision, nil
		}
		t.floor.Store(unknown)
		return 0, t.unwritten(durable.ErrConflict, lost)
	}
	t.over()
	return 0, t.unwritten(durable.ErrDeposed, lost)
}

// unwritten is why nothing was written, unless a leader was lost that was asked to: then that is not known.
func (t *term) unwritten(why error, lost bool) error {
	if lost {
		return t.failed("written", errLeaderLost)
	}
	return why
}

// reads read the records that are to be written.
func (e *Engine) reads(writes []durable.Write) []clientv3.Op {
	ops := make([]clientv3.Op, 0, len(writes))
	for i := range writes {
		ops = append(ops, clientv3.OpGet(e.record(writes[i].Name)))
	}
	return ops
}

// written reports whether the records, if they were read, are as writes make them, all by one write, and its revision. As the
// term still owns them and does not write a record twice at a time, only these writes can have done that.
func written(writes []durable.Write, records []*etcdserverpb.ResponseOp) (revision int64, ok bool) {
	for i := range records {
		w, kvs := &writes[i], records[i].GetResponseRange().GetKvs()
		switch {
		case w.Value == nil && len(kvs) == 0:
		case w.Value == nil || len(kvs) == 0 || !bytes.Equal(kvs[0].GetValue(), w.Value) || kvs[0].GetModRevision() == w.Revision:
			return 0, false
		case revision != 0 && kvs[0].GetModRevision() != revision:
			return 0, false
		default:
			revision = kvs[0].GetModRevision()
		}
	}
	return revision, len(records) > 0
}

// ended is why a term that has ended writes nothing.
func (t *term) ended() error {
	if t.engine.ctx.Err() != nil {
		return durable.ErrEngineClosed
	}
	return durable.ErrDeposed
}

// failed is an error in the words of this package: most of all, that there is no room.
func (t *term) failed(what string, err error) error {
	if t.engine.ctx.Err() != nil {
		return durable.ErrEngineClosed
	}
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return fmt.Errorf("weir: records cannot be %s: the database of etcd has reached its quota: %w", what, err)
	}
	return fmt.Errorf("weir: records cannot be %s: %w", what, err)
}

// unproposed reports whether a write was never proposed, as etcd has no leader at the moment, or the leader hands over, or more
// is waiting to be applied than it takes, so that it can be tried again without knowing more.
func unproposed(err error) bool {
	return strings.HasSuffix(err.Error(), "raft proposal dropped") || errors.Is(err, rpctypes.ErrTooManyRequests)
}

// Resign implements [durable.Term]. It takes no longer than the term would without it, and tries again until then if there is no
// reply, such as from servers that elect a leader just now.
func (t *term) Resign(ctx context.Context) error {
	select {
	case <-t.done:
		return nil
	default:
	}
	t.over()
	if t.engine.ctx.Err() != nil {
		return durable.ErrEngineClosed // it ends by itself
	}
	ctx, cancel := context.WithTimeout(ctx, t.ttl)
	defer cancel()
	ctx, done := t.engine.either(ctx)
	defer done()
	for {
		_, err := t.engine.client.Revoke(ctx, t.lease)
		if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return nil
		}
		if t.engine.ctx.Err() != nil {
			return durable.ErrEngineClosed
		}
		if permanent(err) || !clock.Sleep(ctx, watchPause) {
			return fmt.Errorf("weir: the term ends by itself in %v: %w", t.ttl, err)
		}
	}
}
