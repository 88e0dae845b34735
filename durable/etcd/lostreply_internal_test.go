package etcd

import (
	"bytes"
	"context"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirhq/weir/durable"
)

// losing is a KV that does a transaction, and tells after that only that the servers have another leader: once for each meanwhile
// that it has, which it calls in between.
type losing struct {
	clientv3.KV

	leader     chan struct{}
	meanwhiles []func()
}

type losingTxn struct {
	clientv3.Txn

	kv  *losing
	ctx context.Context //nolint:containedctx // that of the transaction
}

func (l *losing) Txn(ctx context.Context) clientv3.Txn {
	if len(l.meanwhiles) == 0 {
		return l.KV.Txn(ctx)
	}
	return &losingTxn{Txn: l.KV.Txn(ctx), kv: l, ctx: ctx}
}

func (t *losingTxn) If(cs ...clientv3.Cmp) clientv3.Txn   { t.Txn = t.Txn.If(cs...); return t }
func (t *losingTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Then(ops...); return t }
func (t *losingTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(ops...); return t }

func (t *losingTxn) Commit() (*clientv3.TxnResponse, error) {
	if _, err := t.Txn.Commit(); err != nil {
		return nil, err //nolint:wrapcheck // as etcd has it
	}
	meanwhile := t.kv.meanwhiles[0]
	t.kv.meanwhiles = t.kv.meanwhiles[1:]
	meanwhile()
	close(t.kv.leader)
	<-t.ctx.Done()
	t.kv.leader = make(chan struct{})
	return nil, t.ctx.Err() //nolint:wrapcheck // as etcd has it
}

// TestWriteWhoseReplyIsLost: a write that reached the servers before another one led them is done, however often its reply is lost.
// What became of it is unknown if the records are not as it makes them.
func TestWriteWhoseReplyIsLost(t *testing.T) {
	s, err := Start(t.Context(), EmbeddedOptions{Directory: t.TempDir(), UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	kv := s.client.KV
	nothing := func() {}
	other := func() {
		if _, err := kv.Put(t.Context(), defaultPrefix+"state/b", "another"); err != nil {
			t.Error(err)
		}
	}
	again := func() {
		if _, err := kv.Put(t.Context(), defaultPrefix+"state/b", "2"); err != nil {
			t.Error(err)
		}
	}
	deletes := func() {
		if _, err := kv.Delete(t.Context(), defaultPrefix+"state/b"); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		name       string
		meanwhiles []func()
		done       bool
	}{
		{"once", []func(){nothing}, true},
		{"three times", []func(){nothing, nothing, nothing}, true},
		{"one record is another", []func(){other}, false},
		{"one record was written apart", []func(){again}, false},
		{"one record is gone", []func(){nothing, deletes}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &losing{KV: kv, leader: make(chan struct{})}
			client := clientv3.NewCtxClient(t.Context())
			client.KV, client.Lease, client.Watcher = l, s.client.Lease, s.client.Watcher
			e, err := New(client, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			e.leads = func() <-chan struct{} { return l.leader }
			leader, err := e.Campaign(t.Context(), "here")
			if err != nil {
				t.Fatal(err)
			}
			defer leader.Resign(context.WithoutCancel(t.Context()))
			gone, err := leader.Store(t.Context(), []durable.Write{{Name: "gone", Value: []byte("0")}})
			if err != nil {
				t.Fatal(err)
			}
			l.meanwhiles = c.meanwhiles
			writes := []durable.Write{
				{Name: "a", Value: []byte("1")}, {Name: "b", Value: []byte("2")}, {Name: "gone", Revision: gone},
			}
			revision, err := leader.Store(t.Context(), writes)
			if !c.done {
				if !errors.Is(err, errLeaderLost) {
					t.Errorf("at %d, %v", revision, err)
				}
			} else if err != nil {
				t.Error(err)
			}
			for i := range writes[:2] {
				value, at, err := leader.Load(t.Context(), writes[i].Name)
				if err != nil || c.done && (at != revision || !bytes.Equal(value, writes[i].Value)) {
					t.Errorf("%s is %q at %d, %v, written at %d", writes[i].Name, value, at, err, revision)
				}
				if _, err := kv.Delete(t.Context(), defaultPrefix+"state/"+writes[i].Name); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
