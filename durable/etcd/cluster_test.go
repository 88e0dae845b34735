package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/etcd"
)

// freePorts are ports of loopback that nobody uses now.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	ports, open := make([]int, 0, n), make([]net.Listener, 0, n)
	defer func() {
		for _, l := range open {
			_ = l.Close()
		}
	}()
	for range n {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, l) // until all are known, so that they differ
		ports = append(ports, int(netip.MustParseAddrPort(l.Addr().String()).Port()))
	}
	return ports
}

// three are the options of three nodes of one cluster.
func three(t *testing.T) []etcd.ClusterOptions {
	t.Helper()
	ports := freePorts(t, 3)
	peers := map[string]string{}
	for i, p := range ports {
		peers[fmt.Sprintf("node%d", i)] = fmt.Sprintf("http://127.0.0.1:%d", p)
	}
	all := make([]etcd.ClusterOptions, 0, len(ports))
	for i := range ports {
		all = append(all, etcd.ClusterOptions{
			Directory: t.TempDir(), Name: fmt.Sprintf("node%d", i), Peers: peers, Address: "127.0.0.1:0", StartTimeout: inTheEnd,
			UnsafeNoFsync:     true, // a crash is not what is tested
			HeartbeatInterval: 100 * time.Millisecond,
		})
	}
	return all
}

// joinAll joins nodes at the same time.
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
	nodes := joinAll(t, three(t))
	t.Logf("joined in %v", time.Since(begin))
	limit := weir.Limit{Rate: weir.Per(1, time.Hour), Burst: 6}
	granted := 0
	for i := range 9 {
		a := nodes[i%3].Node().Acquire(t.Context(), durable.Request{Policy: "api", Limit: limit, N: 1})
		switch a.Outcome {
		case durable.Granted:
			granted++
		case durable.Refused:
		default:
			t.Errorf("%v %v", a.Outcome, a.Err)
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
