//go:build linux

package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/weirhq/weir/lab/interop/internal/servers"
)

// node is a weir serve with its links, and the clients of the process that runs.
type node struct {
	server  *servers.Node
	setup   setup
	toStore *servers.Link // from the node to Redis
	inward  []*servers.Link
	all     []*policy

	mu      sync.Mutex
	now     *session
	starts  int
	variant variant
}

// session is the clients of one process.
type session struct {
	*clients

	who string
	pid int
}

// fleet is the servers of a soak.
type fleet struct {
	nodes []*node
	redis *servers.Redis
}

// newFleet makes three nodes and a Redis, which are not started.
func newFleet(ctx context.Context, program, dir string, all []*policy, hold time.Duration) (*fleet, error) {
	const count = 3
	ports, err := servers.FreePorts(ctx, 1+2*count)
	if err != nil {
		return nil, err
	}
	f := &fleet{redis: servers.NewRedis(dir, ports[0])}
	peers := make(map[string]string)
	for i := range count {
		name := fmt.Sprint("n", i+1)
		peer, forward := fmt.Sprint("127.0.0.1:", ports[1+2*i]), fmt.Sprint("127.0.0.1:", ports[2+2*i])
		n := &node{server: servers.NewNode(program, name, dir), all: all}
		f.nodes = append(f.nodes, n)
		if n.toStore, err = servers.NewLink(ctx, f.redis.Address()); err != nil {
			return f, err
		}
		for _, target := range []string{peer, forward} {
			l, err := servers.NewLink(ctx, target)
			if err != nil {
				return f, err
			}
			n.inward = append(n.inward, l)
		}
		peers[name] = "http://" + n.inward[0].Address()
		n.setup = setup{
			name: name, directory: filepath.Join(dir, name), store: n.toStore.Address(), listenPeer: "http://" + peer,
			forward: n.inward[1].Address(), listenForward: forward, peers: peers, hold: hold, reserve: 1,
		}
	}
	return f, nil
}

// start starts all servers, and waits until durable limits are owned.
func (f *fleet) start(ctx context.Context) error {
	if err := f.redis.Start(ctx); err != nil {
		return err
	}
	failed := make(chan error, len(f.nodes))
	for _, n := range f.nodes {
		go func() { failed <- n.start(ctx) }()
	}
	for range f.nodes {
		if err := <-failed; err != nil {
			return err
		}
	}
	return f.serves(ctx)
}

// serves waits until every node knows the owner of durable limits and reaches the store.
func (f *fleet) serves(ctx context.Context) error {
	for _, n := range f.nodes {
		if err := servers.Until(ctx, n.setup.name+" grants permits that are durable, and that are shared", func() bool {
			s := n.use()
			if s == nil {
				return false
			}
			short, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			for _, name := range []string{"durable-bucket", "coherent-bucket"} {
				a := s.admin.do(short, &request{charges: []charge{{name, "probe", 0}}})
				if a.outcome != granted && a.outcome != limited {
					return false
				}
			}
			return true
		}); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) stop() {
	for _, n := range f.nodes {
		n.kill()
		for _, l := range append([]*servers.Link{n.toStore}, n.inward...) {
			if l != nil {
				l.Close()
			}
		}
	}
	f.redis.Kill()
}

// use is the clients of the process that runs, nil if none does.
func (n *node) use() *session {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.now
}

// configure writes the configuration.
func (n *node) configure(change func(*variant)) error {
	n.mu.Lock()
	change(&n.variant)
	n.variant.number++
	text := configuration(n.all, n.setup, n.variant)
	n.mu.Unlock()
	return n.server.Configure(text)
}

// start starts a process.
func (n *node) start(ctx context.Context) error {
	if err := n.configure(func(*variant) {}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	addresses, err := n.server.Start(ctx)
	if err != nil {
		return err
	}
	c, err := connect(addresses)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.starts++
	n.now = &session{c, fmt.Sprintf("%s, start %d", n.setup.name, n.starts), n.server.PID()}
	return nil
}

// leave has no request begin any more.
func (n *node) leave() *session {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.now
	n.now = nil
	return s
}

// kill is kill -9.
func (n *node) kill() {
	s := n.leave()
	n.server.Kill()
	if s != nil {
		s.close()
	}
}

// end ends the process in order.
func (n *node) end(ctx context.Context) error {
	s := n.leave()
	err := n.server.Stop(ctx)
	if s != nil {
		s.close()
	}
	return err
}

// owns reports whether the node owns the durable limits.
func (n *node) owns(ctx context.Context) bool {
	s := n.use()
	if s == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var status struct {
		Cluster struct {
			Owns bool `json:"owns"`
		} `json:"cluster"`
	}
	code, err := s.admin.call(ctx, http.MethodGet, "/v1/status", nil, &status)
	return err == nil && code == http.StatusOK && status.Cluster.Owns
}

// quotaUsed is what the record of a durable quota says is used or reserved.
func (n *node) quotaUsed(ctx context.Context, policy, key string) (int64, error) {
	s := n.use()
	if s == nil {
		return 0, fmt.Errorf("%s is not there", n.setup.name)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var q struct {
		Limits []struct {
			Used     int64 `json:"used"`
			Reserved int64 `json:"reserved"`
		} `json:"limits"`
	}
	status, err := s.admin.call(ctx, http.MethodGet, "/v1/quota?policy="+policy+"&key="+key, nil, &q)
	if err != nil {
		return 0, err
	}
	if status != http.StatusOK || len(q.Limits) == 0 {
		return 0, fmt.Errorf("/v1/quota of %s: status %d", policy, status)
	}
	// The quota is the last limit of a policy.
	l := q.Limits[len(q.Limits)-1]
	return l.Used + l.Reserved, nil
}

// described is a part of what the admin API says of a server.
type described struct {
	Process struct {
		Goroutines int    `json:"goroutines"`
		HeapBytes  uint64 `json:"heap_bytes"`
		OpenFiles  int    `json:"open_files"`
	} `json:"process"`
}

// overview asks the admin API, if the server has one.
func (s *session) overview(ctx context.Context) (d described, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var text json.RawMessage
	status, err := s.admin.call(ctx, http.MethodGet, "/v1/admin/overview", nil, &text)
	if err != nil || status != http.StatusOK {
		return d, false
	}
	return d, json.Unmarshal(text, &d) == nil && d.Process.Goroutines > 0
}
