package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable/etcd"
	"github.com/weirhq/weir/durable/spectest"
)

// quota is a limit of a thousand that does not come back while a test runs.
func quota(n int64) spectest.Request {
	return spectest.Request{
		Policy: "quota", Limit: weir.TokenBucket(weir.Per(1, 10*time.Hour), 1000), N: n,
	}
}

// take takes permits once, and waits before that until there is an owner, and records can be written: where a node has just left,
// etcd may have no leader.
func take(t *testing.T, c *etcd.Cluster, n int64) weir.Reason {
	t.Helper()
	ready(t, c.Node())
	other := spectest.Request{Policy: "other", Limit: weir.TokenBucket(weir.PerSecond(1000), 1000), N: 1}
	eventually(t, "records can be written", func() bool {
		return spectest.Acquire(t.Context(), c.Node(), other).Reason == weir.ReasonNone
	})
	a := spectest.Acquire(t.Context(), c.Node(), quota(n))
	if a.Reason != weir.ReasonNone && a.Reason != weir.ReasonLimited {
		t.Fatalf("%v %v", a.Reason, a.Err)
	}
	return a.Reason
}

// empty empties the directory of a node, as a disk that was replaced.
func empty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWipedNodeGrantsNothingTwice: one disk of three is lost while another node is behind and the third is down. The node with the
// empty disk does not take part, with any other, and says what to do. After that has been done all permits are still used.
func TestWipedNodeGrantsNothingTwice(t *testing.T) {
	t.Parallel()
	all := three(t)
	for i := range all {
		all[i] = lasting(all[i])
		all[i].TTL = time.Second
	}
	nodes := joinAll(t, all)
	if t.Failed() {
		return
	}
	if got := take(t, nodes[0], 100); got != weir.ReasonNone {
		t.Fatal(got)
	}
	closeNode := func(i int) {
		t.Helper()
		_ = nodes[i].Close()
	}
	closeNode(2) // which does not have what follows
	if got := take(t, nodes[0], 900); got != weir.ReasonNone {
		t.Fatal(got)
	}
	closeNode(0)
	closeNode(1)
	empty(t, all[0].Directory)

	var work sync.WaitGroup
	stale, end := context.WithCancel(t.Context())
	work.Go(func() { // the stale node, alone with one that has nothing, is no majority
		if c, err := etcd.Join(stale, all[2]); err == nil {
			_ = c.Close() //nolint:contextcheck // it has none
			t.Error("a node that is behind and one whose disk is empty were taken for a majority")
		}
	})
	var log logged
	wiped := all[0]
	wiped.Logger = slog.New(slog.NewTextHandler(&log, nil))
	refuse := func() {
		t.Helper()
		c, err := etcd.Join(t.Context(), wiped)
		if err == nil {
			_ = c.Close()
			t.Fatal("a node with an empty disk has taken part")
		}
		for _, want := range []string{"weir cluster remove node0", "weir cluster add node0 " + all[0].Peers["node0"], "join: true"} {
			if !errors.Is(err, etcd.ErrRepair) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
	refuse()
	end()
	work.Wait()
	work.Go(func() { nodes[1], _ = etcd.Join(t.Context(), all[1]) })
	work.Go(func() { nodes[2], _ = etcd.Join(t.Context(), all[2]) })
	work.Wait()
	defer nodes[1].Close()
	defer nodes[2].Close()
	refuse()
	wiped.Join = true // without having been removed and added
	refuse()

	members := nodes[1].Server()
	if err := members.RemoveMember(t.Context(), "node0"); err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Join(t.Context(), wiped); err == nil || !strings.Contains(err.Error(), "weir cluster add node0") {
		t.Error(err)
	}
	if err := members.AddMember(t.Context(), "node0", all[0].Peers["node0"]); err != nil {
		t.Fatal(err)
	}
	empty(t, wiped.Directory)
	elsewhere := wiped
	elsewhere.Listen = "http://203.0.113.1:1" // a mistake that can be mended
	if _, err := etcd.Join(t.Context(), elsewhere); err == nil || errors.Is(err, etcd.ErrRepair) {
		t.Errorf("at an address of another machine: %v", err)
	}
	c, err := etcd.Join(t.Context(), wiped)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the mended node votes", func() bool {
		found, failed := members.Members(t.Context())
		return failed == nil && len(found) == 3 && !found[0].Learner && found[0].Name == "node0" && found[0].Started
	})
	if got := take(t, c, 1); got != weir.ReasonLimited {
		t.Errorf("1001 of 1000: %v", got)
	}
	// With the mended node and one other there is a majority that knows.
	_ = nodes[1].Close()
	if got := take(t, c, 1); got != weir.ReasonLimited {
		t.Errorf("1001 of 1000: %v", got)
	}
	// What was mended and lost its disk again is refused, although its file still says join.
	_ = c.Close()
	if nodes[1], err = etcd.Join(t.Context(), all[1]); err != nil {
		t.Fatal(err)
	}
	defer nodes[1].Close()
	empty(t, wiped.Directory)
	refuse()
}

// TestNodesAreRemoved: the owner hands over before it is removed, long before its lease runs out, and burns nothing. It says that it was
// removed, and what to do, also when it is started again. A node that is asked to remove itself says that it has, although its server
// ends by that.
func TestNodesAreRemoved(t *testing.T) {
	t.Parallel()
	all := three(t)
	for i := range all {
		all[i] = lasting(all[i])
		all[i].HeartbeatInterval = calm / 5 // the one that is removed may lead etcd, and another one is elected then
	}
	nodes := joinAll(t, all)
	for _, c := range nodes {
		ready(t, c.Node())
	}
	owner := slices.IndexFunc(nodes, func(c *etcd.Cluster) bool { return c.Node().Owner() != nil })
	stays, next := (owner+1)%len(nodes), (owner+2)%len(nodes)
	if got := take(t, nodes[next], 500); got != weir.ReasonNone {
		t.Fatal(got)
	}
	begin := time.Now()
	if err := nodes[stays].Server().RemoveMember(t.Context(), all[owner].Name); err != nil {
		t.Fatal(err)
	}
	removed := time.Now()
	if got := take(t, nodes[next], 500); got != weir.ReasonNone || time.Since(removed) > patient/2 {
		t.Errorf("%v, %v after the removal", got, time.Since(removed))
	}
	t.Logf("removed in %v, granted %v later", removed.Sub(begin), time.Since(removed))
	says := func(what string, err error) {
		t.Helper()
		again := fmt.Sprintf("was removed from the cluster; stop it, or to have it back: while the other nodes are up, run `weir cluster add %s %s`",
			all[owner].Name, all[owner].Peers[all[owner].Name])
		if !errors.Is(err, etcd.ErrRepair) || !strings.Contains(err.Error(), again) || strings.Contains(err.Error(), "cluster remove") {
			t.Errorf("%s: %v", what, err)
		}
	}
	<-nodes[owner].Failed()
	says("while it runs", nodes[owner].Err())
	_ = nodes[owner].Close()
	c, err := etcd.Join(t.Context(), all[owner])
	if says("started again", err); err == nil {
		_ = c.Close()
	}

	if err := nodes[next].Server().RemoveMember(t.Context(), all[next].Name); err != nil {
		t.Errorf("by itself: %v", err)
	}
	eventually(t, "one node is left", func() bool {
		left, err := nodes[stays].Server().Members(t.Context())
		return err == nil && len(left) == 1
	})
	ready(t, nodes[stays].Node())
	if err := nodes[stays].Server().RemoveMember(t.Context(), all[stays].Name); err == nil || nodes[stays].Node().Owner() == nil {
		t.Errorf("the last one, which goes on as the owner: %v", err)
	}
}

// TestOneNodeGrowsAndMoves: a node that was alone says what it needs before another one can be added. With that another one, whose file
// has a third node as well, joins it with all that was granted, and later gets another address.
func TestOneNodeGrowsAndMoves(t *testing.T) {
	t.Parallel()
	all := three(t)
	for i := range all {
		all[i] = lasting(all[i])
		all[i].HeartbeatInterval, all[i].Join = calm/5, i > 0
	}
	join := func(o etcd.ClusterOptions) *etcd.Cluster {
		t.Helper()
		c, err := etcd.Join(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	alone := all[0]
	alone.Name, alone.Peers, alone.Address = "", nil, ""
	first := join(alone)
	if got := take(t, first, 500); got != weir.ReasonNone {
		t.Error(got)
	}
	add := func() error { return first.Server().AddMember(t.Context(), "node1", all[1].Peers["node1"]) }
	if err := add(); err == nil || !strings.Contains(err.Error(), "write name, peers and address") {
		t.Error(err)
	}
	_ = first.Close()

	first = join(all[0])
	second := first // until there is one
	defer func() {
		for _, c := range []*etcd.Cluster{first, second} { // while there is a majority that can be told
			_ = c.Node().Close()
		}
		_, _ = first.Close(), second.Close()
	}()
	knows := func(node int, url string) {
		t.Helper()
		eventually(t, url+" is known", func() bool {
			found, err := first.Server().Members(t.Context())
			return err == nil && len(found) > node && found[node].URL == url && !found[node].Learner
		})
	}
	knows(0, all[0].Peers["node0"])
	if err := add(); err != nil {
		t.Fatal(err)
	}
	if err := first.Server().AddMember(t.Context(), "node2", all[2].Peers["node2"]); err == nil || !strings.Contains(err.Error(), `"node1" was added`) {
		t.Error(err)
	}
	second = join(all[1])
	knows(1, all[1].Peers["node1"])
	if got := take(t, second, 501); got != weir.ReasonLimited {
		t.Errorf("501 of the 500 that are left: %v", got)
	}

	_ = second.Close()
	all[1].Peers = maps.Clone(all[1].Peers)
	all[1].Peers["node1"] = "http://" + etcd.FreeAddresses(t, 1)[0]
	second = join(all[1])
	knows(1, all[1].Peers["node1"])
	if got := take(t, second, 500); got != weir.ReasonNone {
		t.Errorf("500 of the 500 that are left: %v", got)
	}
}

// TestPartOfDirectoryIsLost: a node whose log is gone, though the rest is there, does not begin anew.
func TestPartOfDirectoryIsLost(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"member", "member/wal"} {
		dir := filled(t)
		if err := os.RemoveAll(filepath.Join(dir, what)); err != nil {
			t.Fatal(err)
		}
		c, err := etcd.Join(t.Context(), etcd.ClusterOptions{Directory: dir})
		if err == nil {
			_ = c.Close()
			t.Fatalf("%s is gone, and it began anew", what)
		}
		if !errors.Is(err, etcd.ErrRepair) || !strings.Contains(err.Error(), "backup") {
			t.Error(err)
		}
	}
}

// TestClusterIsFormedByAll: two of three do not form a cluster, and say whom they wait for.
func TestClusterIsFormedByAll(t *testing.T) {
	t.Parallel()
	all := three(t)
	var work sync.WaitGroup
	for i := range 2 {
		o := all[i]
		o.StartTimeout = 2 * time.Second
		work.Go(func() {
			c, err := etcd.Join(t.Context(), o)
			if err == nil {
				_ = c.Close()
				t.Error("two of three have formed a cluster")
			} else if !strings.Contains(err.Error(), "node2") {
				t.Error(err)
			}
		})
	}
	work.Wait()
	if !t.Failed() {
		joinAll(t, all) // with the directories of before
	}
}

// TestHandshakesWhileForming: a client that makes handshakes fail at a node that waits for others writes nothing into the log of
// the program.
func TestHandshakesWhileForming(t *testing.T) {
	var out logged
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil))) // which takes what package log is told, too
	defer slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	a := newAuthority(t)
	a.issue(t, "node")
	o := three(t)[0]
	at := strings.TrimPrefix(o.Peers[o.Name], "http://")
	peers := maps.Clone(o.Peers)
	for name, url := range peers {
		peers[name] = "https" + strings.TrimPrefix(url, "http")
	}
	o.Peers, o.PeerCertFile, o.PeerKeyFile, o.PeerCAFile = peers, a.file("node.pem"), a.file("node.key"), a.file("ca.pem")
	ctx, cancel := context.WithCancel(t.Context())
	joined := make(chan error, 1)
	go func() {
		_, err := etcd.Join(ctx, o)
		joined <- err
	}()
	eventually(t, "a request without TLS has its answer", func() bool {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", at)
		if err != nil {
			return false
		}
		defer c.Close()
		if _, err = io.WriteString(c, "GET / HTTP/1.1\r\n\r\n"); err != nil {
			return false
		}
		response, _ := io.ReadAll(c)
		return strings.HasPrefix(string(response), "HTTP/1.0 400 ")
	})
	cancel()
	if err := <-joined; !errors.Is(err, context.Canceled) { // after the server has ended, and what it logs is logged
		t.Error(err)
	}
	if text := out.String(); text != "" {
		t.Errorf("it logs %q", text)
	}
}
