package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/enginetest"
	"github.com/weirhq/weir/durable/etcd"
)

// suite runs the suite of engines, each of whose tests has a prefix of its own. Tests share what the clients lead to.
func suite(t *testing.T, clients ...*clientv3.Client) {
	t.Helper()
	var last, turn atomic.Int64
	enginetest.Run(t, func(t *testing.T) enginetest.Cluster {
		prefix, ttl := fmt.Sprintf("/weir/%d/", last.Add(1)), patient
		switch path.Base(t.Name()) {
		case "OneIsElected": // which lasts for longer than a term without signs of life
			ttl = 5 * time.Second
		case "ClosingEndsEverything", "NobodyIsElectedBeforeATermExpires":
			ttl = 2 * time.Second
		}
		return enginetest.Cluster{TTL: ttl + time.Second/2, Engine: func(t *testing.T) durable.Engine {
			e, err := etcd.New(clients[int(turn.Add(1))%len(clients)], etcd.Options{Prefix: prefix, TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			return e
		}}
	})
}

// quick is an etcd server without fsync, as its crashes are not what is tested.
func quick(t *testing.T) *etcd.Server {
	t.Helper()
	s, err := etcd.Start(t.Context(), etcd.EmbeddedOptions{Directory: t.TempDir(), UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestEngineEmbedded(t *testing.T) {
	t.Parallel()
	suite(t, quick(t).Client())
}

func TestEngineOfThree(t *testing.T) {
	t.Parallel()
	var clients []*clientv3.Client
	for _, c := range joinAll(t, three(t)) {
		clients = append(clients, c.Server().Client())
	}
	suite(t, clients...)
}

func TestEngineExternal(t *testing.T) {
	t.Parallel()
	suite(t, startExternal(t).client(t, userName, password))
}

// TestKeyDeletedByHand: an owner whose key or lease is deleted by hand knows at once, and the next one is elected.
func TestKeyDeletedByHand(t *testing.T) {
	t.Parallel()
	client := quick(t).Client()
	e, err := etcd.New(client, etcd.Options{TTL: patient})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, how := range []string{"key", "lease"} {
		term, err := e.Campaign(t.Context(), "first")
		if err != nil {
			t.Fatal(err)
		}
		if how == "key" {
			_, err = client.Delete(t.Context(), "/weir/owner/", clientv3.WithPrefix())
		} else {
			var keys *clientv3.GetResponse
			if keys, err = client.Get(t.Context(), "/weir/owner/", clientv3.WithPrefix()); err == nil {
				_, err = client.Revoke(t.Context(), clientv3.LeaseID(keys.Kvs[0].GetLease()))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-term.Done():
		case <-time.After(inTheEnd):
			t.Errorf("the term goes on without its %s", how)
		}
		if time.Now().Before(term.Expires()) {
			t.Error("it has not expired")
		}
	}
}

// faltering does not revoke a few leases, as a server whose leader has just died.
type faltering struct {
	clientv3.Lease

	failures atomic.Int64
}

func (f *faltering) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	if f.failures.Add(-1) >= 0 {
		return nil, rpctypes.ErrTimeoutDueToLeaderFail
	}
	return f.Lease.Revoke(ctx, id) //nolint:wrapcheck // of the client
}

// TestResignTriesAgain: an owner that resigns while a leader is elected is followed at once, not when the term would have ended.
func TestResignTriesAgain(t *testing.T) {
	t.Parallel()
	client := quick(t).Client()
	lease := &faltering{Lease: client.Lease}
	client.Lease = lease
	e, err := etcd.New(client, etcd.Options{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, address := range []string{"first", "second"} {
		term, campaignErr := e.Campaign(t.Context(), address)
		if campaignErr != nil {
			t.Fatal(campaignErr)
		}
		lease.failures.Store(2)
		if resignErr := term.Resign(t.Context()); resignErr != nil {
			t.Error(resignErr)
		}
		if left := lease.failures.Load(); left != -1 {
			t.Errorf("%s has resigned with %d failures left, want -1", address, left)
		}
	}
	term, err := e.Campaign(t.Context(), "third")
	if err != nil {
		t.Fatal(err)
	}
	lease.failures.Store(math.MaxInt64)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := term.Resign(ctx); !errors.Is(err, rpctypes.ErrTimeoutDueToLeaderFail) || ctx.Err() == nil {
		t.Errorf("no reply: %v, context: %v", err, ctx.Err())
	}
}

// TestCompactionWhileWaiting: candidates and watchers outlive that the revisions they had come from are given up.
func TestCompactionWhileWaiting(t *testing.T) {
	t.Parallel()
	client := quick(t).Client()
	e, err := etcd.New(client, etcd.Options{TTL: patient})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	first, err := e.Campaign(t.Context(), "first")
	if err != nil {
		t.Fatal(err)
	}
	won := make(chan durable.Term, 1)
	go func() {
		defer close(won)
		if term, lost := e.Campaign(t.Context(), "second"); lost == nil {
			won <- term
		}
	}()
	w, err := e.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var revision int64
	for range 20 {
		if revision, err = first.Store(t.Context(), []durable.Write{{Name: "a", Value: []byte("b"), Revision: revision}}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Compact(t.Context(), revision); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	if second, ok := <-won; !ok {
		t.Error("the second was not elected")
	} else {
		defer func() { _ = second.Resign(t.Context()) }()
	}
	for o := range w {
		if o.Address == "second" {
			break
		}
	}
}

// TestOptionsOfEngines: what is wrong is named.
func TestOptionsOfEngines(t *testing.T) {
	for name, o := range map[string]etcd.Options{
		"TTL": {TTL: 1500 * time.Millisecond}, "TTL short": {TTL: time.Millisecond}, "TTL long": {TTL: 2 * time.Hour},
		"Prefix": {Prefix: "weir"}, "Prefix long": {Prefix: strings.Repeat("/", 300)},
	} {
		_, err := etcd.New(new(clientv3.Client), o)
		wantOption(t, err, "Options."+strings.Fields(name)[0])
	}
}
