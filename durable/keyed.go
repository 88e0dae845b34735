package durable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// KeyedOptions configure a [Keyed].
type KeyedOptions struct {
	// Name is the Policy of the decisions. Another name makes no difference to what is kept. Default: "".
	Name string
	// QueueLimit bounds, for each key, the sum of the permits that callers of Wait and Reserve wait for: from 0 to 10^15.
	// Default: 0, such a call fails with [weir.ErrNoQueue] where it would have to wait.
	QueueLimit int64
	// MaxKeys is how many keys are kept at a time: from 1 to 10^9, and as many more as calls for new keys run at once. A key
	// leaves within minutes of having all its permits; no other key ever does. A new key that finds no room is refused with
	// ReasonTableFull. Default: 1,000,000.
	MaxKeys int
	// Reserve is how many permits of a key the file may count in advance: a crash burns one less at most. With 1 it burns
	// nothing, and each call that takes permits waits for the disk. From 1 to 10^15. Default: 0, a tenth of the limit.
	Reserve int64
	// Logger logs, at level Warn, that the file ended with a write that was not finished, that a write has failed, and that the
	// clock was wrong. Default: nil, silent.
	Logger *slog.Logger

	disk  disk
	clock weir.Clock
}

// Keyed is one limit for each key, like a [weir.Keyed] of strings, that survives restarts and crashes of its process:
// [OpenKeyed] keeps what was used in a file. Over any number of crashes it never allows more than the limit, as the file
// counts a permit before a caller gets it (TestKilledProcessesGrantNothingTwice). Close loses nothing. A crash burns less
// than a tenth of the limit of each key: permits that count as used, and that no caller got. They come back with time, like
// all others.
//
// One write serves many calls for a busy key. A call for a quiet key waits for the disk, some milliseconds. While the disk is
// full or fails, nothing is allowed that would need it, with ReasonUnavailable.
//
// Keys have from 0 to 1024 bytes; a longer one is refused with ReasonInvalid. They are in the file, and in memory. All
// methods are safe for concurrent use.
type Keyed struct {
	name       string
	limit      weir.Limit
	queueLimit int64
	maxKeys    int
	file       *File
	node       *Node
	closed     atomic.Bool
}

// keyedPolicy is the policy of the records of a [Keyed].
const keyedPolicy = "keyed"

// OpenKeyed opens the file of a limit for each key, and makes it if there is none: see [OpenFile], whose errors it returns. A
// file belongs to one process, and to one Keyed.
//
// The limit may be another one than before if its algorithm is the same: permits that were used stay used. A file of another
// algorithm, or of an [OpenFile] of other policies, is refused by an error that names both, as all counts would begin anew. A
// limit [weir.AtOnce] is refused: its permits come back when they are released, which the end of a process does.
func OpenKeyed(path string, limit weir.Limit, o KeyedOptions) (*Keyed, error) {
	if err := o.check(limit); err != nil {
		return nil, err
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = defaultMaxKeys
	}
	f, err := OpenFile(path, FileOptions{Logger: o.Logger, disk: o.disk})
	if err != nil {
		return nil, err
	}
	if err = f.keeps(limit); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	n, err := NewNode(NodeOptions{
		Engine: f.Engine(), Address: keyedPolicy, Logger: o.Logger,
		Owner: OwnerOptions{Reserve: o.Reserve, MaxKeys: o.MaxKeys, Logger: o.Logger, Clock: o.clock},
	})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Keyed{name: o.Name, limit: limit, queueLimit: o.QueueLimit, maxKeys: o.MaxKeys, file: f, node: n}, nil
}

// check returns what cannot be used.
func (o *KeyedOptions) check(limit weir.Limit) error {
	if err := limit.Check(); err != nil {
		return fmt.Errorf("%w", err)
	}
	switch {
	case limit.Algorithm() == weir.AlgorithmConcurrency:
		return &weir.OptionError{
			Option: "OpenKeyed.limit", Value: limit.String(),
			Accepted: "one whose permits come back with time: use weir.NewKeyedConcurrency",
		}
	case o.QueueLimit < 0 || o.QueueLimit > maxRecordAhead:
		return &weir.OptionError{
			Option: "KeyedOptions.QueueLimit", Value: fmt.Sprint(o.QueueLimit), Accepted: "from 0 to 10^15 permits",
		}
	case o.MaxKeys < 0 || o.MaxKeys > 1e9:
		return &weir.OptionError{
			Option: "KeyedOptions.MaxKeys", Value: fmt.Sprint(o.MaxKeys), Accepted: "from 1 to 10^9, or 0 for 1,000,000",
		}
	case o.Reserve < 0 || o.Reserve > maxRecordAhead:
		return &weir.OptionError{
			Option: "KeyedOptions.Reserve", Value: fmt.Sprint(o.Reserve),
			Accepted: "from 1 to 10^15 permits, or 0 for a tenth of the limit",
		}
	}
	return nil
}

// keeps returns an error if the file keeps something else than such a limit for each key.
func (f *File) keeps(limit weir.Limit) error {
	f.data.RLock()
	defer f.data.RUnlock()
	for _, chunk := range f.records.chunks {
		for i := range chunk {
			r := &chunk[i]
			if policy := recordPolicy(r.Name); policy != keyedPolicy {
				return fmt.Errorf("weir: the file of limits %s is not that of a Keyed: it has a record of the policy %.80q",
					f.path, policy)
			}
			state, _, err := decodeRecord(r.Name, r.Value)
			if err != nil {
				return fmt.Errorf("weir: the file of limits %s has a record that cannot be read: %w", f.path, err)
			}
			if was := state.Limit(); was.Algorithm() != limit.Algorithm() {
				return fmt.Errorf("weir: the file of limits %s is that of a limit of another algorithm, %q, and this one is %q: "+
					"name another file, or remove it, with which all keys begin anew", f.path, was, limit)
			}
		}
	}
	return nil
}

// Allow takes one permit of key if it is available. It is Take(key, 1) where the decision does not matter.
func (k *Keyed) Allow(key string) bool { return k.Take(key, 1).Allowed }

// Take takes n permits of key if they are available, and waits for nothing but the disk, for 5 s at most. With ReasonUnavailable
// the disk has failed, and the permits may count as used.
func (k *Keyed) Take(key string, n int64) weir.Decision {
	c, d := [1]store.Charge{k.charge(key, n)}, [1]weir.Decision{}
	if o := k.node.Owner(); o != nil && o.quick(context.Background(), &store.Ask{}, c[:], d[:]) {
		d[0].Policy = k.name
		return d[0]
	}
	return k.take(key, n)
}

// take is Take of a key that is not in memory, or whose record is used up.
func (k *Keyed) take(key string, n int64) weir.Decision {
	if !k.room(key, n) {
		return k.full()
	}
	return k.do(store.ModeTake, key, n)
}

// never is the decision about more permits than a charge can have.
func (k *Keyed) never(key string) weir.Decision {
	d := k.do(store.ModePeek, key, 0)
	if d.Allowed || d.Reason == weir.ReasonLimited {
		d.Allowed, d.Reason, d.RetryAfter = false, weir.ReasonNever, weir.Never
	}
	return d
}

// do is a call that waits for nothing but the disk.
func (k *Keyed) do(mode store.Mode, key string, n int64) weir.Decision {
	if n > maxRecordAhead {
		return k.never(key)
	}
	c, d := [1]store.Charge{k.charge(key, n)}, [1]weir.Decision{}
	if _, err := k.node.Do(context.Background(), store.Ask{Mode: mode}, c[:], d[:]); err != nil {
		return k.failed(err)
	}
	k.told(&d[0])
	return d[0]
}

// told makes a decision of the node that of the limiter, whose end is that of all terms.
func (k *Keyed) told(d *weir.Decision) {
	d.Policy = k.name
	if d.Reason == weir.ReasonClosed && k.closed.Load() {
		d.RetryAfter = weir.Never
	}
}

// Wait takes n permits of key, and waits for them if KeyedOptions.QueueLimit is not 0, or n is. The error is nil if and only if
// the caller has them: otherwise it is a *[weir.RefusedError] if the limit refused, or matches [store.ErrUnavailable] if the disk
// failed. See [weir.Acquirer] for n and for a ctx that ends.
func (k *Keyed) Wait(ctx context.Context, key string, n int64) error {
	_, err := k.acquire(ctx, key, n, 0)
	return err
}

// Reserve is Wait with a cost that is settled later, by Commit or Cancel, also by the process that comes after this one. One
// that is not settled until expiry has passed, which is from 1 ms to 24 h, is canceled by itself.
func (k *Keyed) Reserve(ctx context.Context, key string, n int64, expiry time.Duration) (store.Hold, error) {
	if expiry < store.LeastExpiry || expiry > store.MostExpiry {
		return store.Hold{}, &weir.OptionError{Option: "expiry", Value: expiry.String(), Accepted: "from 1ms to 24h"}
	}
	return k.acquire(ctx, key, n, expiry)
}

// Commit ends a reservation with what it really cost: less is given back, more is charged, up to a debt of the limit. The
// error is [ErrNotReserved] if it has expired or was settled before.
func (k *Keyed) Commit(ctx context.Context, h store.Hold, actual int64) error {
	k.made()
	return k.node.Settle(ctx, h, []int64{actual})
}

// Cancel ends a reservation as if nothing had been taken. The error is that of Commit.
func (k *Keyed) Cancel(ctx context.Context, h store.Hold) error {
	k.made()
	return k.node.Settle(ctx, h, nil)
}

func (k *Keyed) acquire(ctx context.Context, key string, n int64, expiry time.Duration) (store.Hold, error) {
	mustContext(ctx)
	c, d := [1]store.Charge{k.charge(key, n)}, [1]weir.Decision{}
	if !k.room(key, n) || n > maxRecordAhead {
		if d[0] = k.full(); n > maxRecordAhead {
			d[0] = k.never(key)
		}
		return store.Hold{}, store.Refusal(ctx, c[:], d[:]) //nolint:wrapcheck // it is a *weir.RefusedError
	}
	ask := store.Ask{Hold: expiry, Wait: store.MaxWait}
	if until, ok := ctx.Deadline(); ok {
		ask.Wait = min(ask.Wait, max(time.Until(until), 1))
	}
	h, err := store.Acquire(ctx, k.node, ask, c[:], d[:])
	switch refused, ok := errors.AsType[*weir.RefusedError](err); {
	case err == nil:
		return h, nil
	case ok:
		k.told(&refused.Decision)
		switch {
		case k.queueLimit == 0 && refused.Decision.Reason == weir.ReasonLimited:
			refused.Decision.Reason, refused.Err = weir.ReasonQueueFull, weir.ErrNoQueue
		case refused.Decision.Reason == weir.ReasonClosed && k.closed.Load():
			refused.Err = weir.ErrClosed
		}
	default:
		switch d[0] = k.failed(err); d[0].Reason {
		case weir.ReasonInvalid:
			err = &weir.RefusedError{Decision: d[0], Permits: n, Err: err}
		case weir.ReasonClosed:
			err = &weir.RefusedError{Decision: d[0], Permits: n, Err: weir.ErrClosed}
		default:
		}
	}
	return store.Hold{}, err
}

// Peek returns what Take would, and takes nothing. A new key for which there is no room is refused with ReasonTableFull.
func (k *Keyed) Peek(key string, n int64) weir.Decision {
	k.made()
	if !k.room(key, n) {
		return k.full()
	}
	return k.do(store.ModePeek, key, n)
}

// Refund gives key n permits back whatever their origin, at most until all are available. It is for operators: to undo a request,
// reserve and Cancel, which cannot give back too much.
func (k *Keyed) Refund(ctx context.Context, key string, n int64) error {
	return store.Refund(ctx, k.node, []store.Charge{k.charge(key, n)})
}

// Reset makes all permits of key available, as if it had never been seen.
func (k *Keyed) Reset(ctx context.Context, key string) error {
	k.made()
	return store.Reset(ctx, k.node, keyedPolicy, key)
}

// Limit is the limit of each key.
func (k *Keyed) Limit() weir.Limit { return k.limit }

// LimitOf is Limit, for middleware that tells clients the limit of their key.
func (k *Keyed) LimitOf(string) weir.Limit { return k.limit }

// Close ends the limiter, and closes its file when all of it is on disk. Callers that wait, and later calls, are refused with
// ReasonClosed. A second call does nothing.
func (k *Keyed) Close() error {
	k.made()
	if k.closed.Swap(true) {
		return nil
	}
	return errors.Join(k.node.Close(), k.file.Close())
}

// made panics if k is a zero Keyed.
func (k *Keyed) made() {
	if k.node == nil {
		panic("weir: durable: zero Keyed: make it by OpenKeyed")
	}
}

func (k *Keyed) charge(key string, n int64) store.Charge {
	k.made()
	c := store.Charge{Policy: keyedPolicy, Key: key, Limit: k.limit, N: n, Queue: k.queueLimit}
	if n == 0 {
		c.Queue = max(c.Queue, 1) // it takes no room in a queue, so it can wait without one
	}
	return c
}

// room reports whether a key is in the file, or there is room for it. It needs none for what is refused in any case.
func (k *Keyed) room(key string, n int64) bool {
	if n < 0 || n > k.limit.Permits() || len(key) > store.MostKeyBytes || k.closed.Load() {
		return true
	}
	f := k.file
	f.data.RLock()
	defer f.data.RUnlock()
	return f.records.count < k.maxKeys || f.records.get(recordKey(keyedPolicy, key, k.limit.Algorithm())).Revision != 0
}

// full is the decision about a new key that finds no room.
func (k *Keyed) full() weir.Decision {
	return weir.Decision{
		Reason: weir.ReasonTableFull, Limit: k.limit.Permits(), RetryAfter: time.Second, Policy: k.name,
	}
}

// failed is the decision of a call that was not decided.
func (k *Keyed) failed(err error) weir.Decision {
	d := weir.Decision{Reason: weir.ReasonUnavailable, Limit: k.limit.Permits(), Policy: k.name}
	if _, misuse := errors.AsType[*weir.OptionError](err); misuse {
		d.Reason, d.RetryAfter = weir.ReasonInvalid, weir.Never
	} else if k.closed.Load() {
		d.Reason, d.RetryAfter = weir.ReasonClosed, weir.Never
	}
	return d
}
