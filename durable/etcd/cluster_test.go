package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/etcd"
	"github.com/weirhq/weir/durable/spectest"
)

// patient is how long the terms last of tests in which none is to be lost: longer by far than a machine stands still that others
// share.
const patient = 30 * time.Second

// calm is how often leaders of etcd report in clusters that are not to lose theirs because the machine stands still: an election
// begins after ten times as long. Each new leader lets all leases begin anew, so that one that is lost again and again keeps a dead
// owner in its place.
const calm = 500 * time.Millisecond

// three are the options of three nodes of one cluster.
func three(t *testing.T) []etcd.ClusterOptions {
	t.Helper()
	addresses := etcd.FreeAddresses(t, 3)
	peers := map[string]string{}
	for i, at := range addresses {
		peers[fmt.Sprintf("node%d", i)] = "http://" + at
	}
	all := make([]etcd.ClusterOptions, 0, len(addresses))
	for i := range addresses {
		all = append(all, etcd.ClusterOptions{
			Directory: t.TempDir(), Name: fmt.Sprintf("node%d", i), Peers: peers, Address: "127.0.0.1:0", StartTimeout: inTheEnd,
			UnsafeNoFsync:     true, // a crash is not what is tested
			HeartbeatInterval: calm, OwnerWait: longest,
		})
	}
	return all
}

// lasting has no owner lost because the machine stands still, or the disk does.
func lasting(o etcd.ClusterOptions) etcd.ClusterOptions {
	o.TTL, o.OwnerWait, o.Owner.WriteTimeout = patient, longest, longest
	return o
}

// ready waits until a node knows an owner: one that does not wait for permits is not told to for long.
func ready(t *testing.T, n *durable.Node) {
	t.Helper()
	r := spectest.Request{Policy: "ready", Limit: weir.TokenBucket(weir.PerSecond(1), 0), N: 0, Wait: inTheEnd}
	for end := time.Now().Add(inTheEnd); ; {
		a := spectest.Acquire(t.Context(), n, r)
		if a.Reason == weir.ReasonNone {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("there is no owner: %v %v", a.Reason, a.Err)
		}
	}
}

// joinAll joins nodes at the same time. In the end they leave while there is a majority that can be told.
func joinAll(t *testing.T, all []etcd.ClusterOptions) []*etcd.Cluster {
	t.Helper()
	nodes := make([]*etcd.Cluster, len(all))
	var work sync.WaitGroup
	for i := range all {
		work.Go(func() {
			c, err := etcd.Join(context.Background(), all[i])
			if err != nil {
				t.Error(err)
				return
			}
			nodes[i] = c
		})
	}
	work.Wait()
	t.Cleanup(func() {
		for _, c := range nodes {
			if c != nil {
				work.Go(func() { _ = c.Node().Close() })
			}
		}
		work.Wait()
		for _, c := range nodes {
			if c != nil {
				work.Go(func() { _ = c.Close() })
			}
		}
		work.Wait()
	})
	if t.Failed() {
		t.FailNow()
	}
	return nodes
}

// TestThreeNodes: three processes' worth of nodes find each other, and the limit is one whichever is asked.
func TestThreeNodes(t *testing.T) {
	begin := time.Now()
	all := three(t)
	for i := range all {
		all[i] = lasting(all[i])
	}
	nodes := joinAll(t, all)
	t.Logf("joined in %v", time.Since(begin))
	for _, c := range nodes {
		ready(t, c.Node())
	}
	limit := weir.TokenBucket(weir.Per(1, time.Hour), 6)
	granted := 0
	for i := range 9 {
		a := spectest.Acquire(t.Context(), nodes[i%3].Node(), spectest.Request{Policy: "api", Limit: limit, N: 1})
		switch a.Reason {
		case weir.ReasonNone:
			granted++
		case weir.ReasonLimited:
		default:
			t.Errorf("%v %v", a.Reason, a.Err)
		}
	}
	if granted != 6 {
		t.Errorf("%d were granted", granted)
	}
}

// wantOption wants an error that names an option.
func wantOption(t *testing.T, err error, option string) {
	t.Helper()
	if o, ok := errors.AsType[*weir.OptionError](err); !ok || o.Option != option {
		t.Errorf("%v, want one of %s", err, option)
	}
}
