package etcd_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/etcd"
	"github.com/weirhq/weir/durable/spectest"
)

// inTheEnd is by when something must have come about, however slow the machine is. It says nothing about how long that should take.
const inTheEnd = 5 * time.Minute

// longest is for how long a node waits at most for an owner, or for a write.
const longest = time.Minute

// holdsWithin waits until a condition holds that nothing tells of, and reports whether it has within a time.
func holdsWithin(limit time.Duration, holds func() bool) bool {
	end, again := time.NewTimer(limit), time.NewTicker(5*time.Millisecond)
	defer end.Stop()
	defer again.Stop()
	for !holds() {
		select {
		case <-again.C:
		case <-end.C:
			return false
		}
	}
	return true
}

// eventually waits until a condition holds that nothing tells of.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	if !holdsWithin(inTheEnd, holds) {
		t.Fatalf("not within %v: %s", inTheEnd, what)
	}
}

func TestEmbeddedAlone(t *testing.T) {
	dir := t.TempDir()
	for round := range 2 {
		begin := time.Now()
		s, err := etcd.Start(t.Context(), etcd.EmbeddedOptions{Directory: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("started in %v", time.Since(begin))
		e, err := etcd.New(s.Client(), etcd.Options{TTL: patient})
		if err != nil {
			t.Fatal(err)
		}
		n, err := durable.NewNode(durable.NodeOptions{Engine: e, Address: "here", OwnerWait: longest})
		if err != nil {
			t.Fatal(err)
		}
		ready(t, n)
		limit := weir.TokenBucket(weir.Per(1, time.Hour), 5)
		for i := range 4 {
			a := spectest.Acquire(t.Context(), n, spectest.Request{Policy: "api", Limit: limit, N: 1})
			want := weir.ReasonNone
			if round == 1 && i > 0 {
				want = weir.ReasonLimited
			}
			if a.Reason != want {
				t.Errorf("round %d, %d: %v %v", round, i, a.Reason, a.Err)
			}
		}
		t.Logf("granted after %v", time.Since(begin))
		_ = n.Close()
		_ = e.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		t.Logf("closed after %v", time.Since(begin))
	}
}
