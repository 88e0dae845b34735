//go:build linux

package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir/internal/bounds"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/lab/interop/internal/servers"
)

// Fault is something that is done to the servers.
type Fault struct {
	Name string
	do   func(ctx context.Context, s *storm) error
	// ends tells that it ends processes of nodes.
	ends bool
}

// Faults are all that can be done.
func Faults() []Fault {
	return []Fault{
		{"kill", killNode, true},
		{"terminate", terminateNode, true},
		{"kill-owner", killOwner, true},
		{"kill-all", killAll, true},
		{"freeze", freezeNode, false},
		{"freeze-redis", freezeRedis, false},
		{"restart-redis", restartRedis, false},
		{"cut-redis", cutRedis, false},
		{"cut-node", cutNode, false},
		{"cut-clients", cutClients, false},
		{"reload", reload, false},
		{"reload-bad", reloadBad, false},
		{"override", override, false},
	}
}

// storm does faults, one after the other.
type storm struct {
	fleet   *fleet
	traffic *traffic
	random  *rand.Rand
	// pace is how long a fault lasts, and how long there is peace between two, more or less.
	pace  time.Duration
	quiet bool // no process of the witness is ended any more

	mu    sync.Mutex
	did   map[string]int
	log   []happened
	notes []string
}

// happened is a fault that was done.
type happened struct {
	Fault string        `json:"fault"`
	From  time.Duration `json:"from"`
	To    time.Duration `json:"to"`
	Error string        `json:"error,omitempty"`
}

// run does faults until ctx ends. Each has been done once before any is done again.
func (s *storm) run(ctx context.Context, faults []Fault, half time.Duration) error {
	for {
		deck := append([]Fault(nil), faults...)
		s.random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		for _, f := range deck {
			if !clock.Sleep(ctx, s.pace/2+time.Duration(s.random.Int64N(int64(s.pace)))) {
				return nil
			}
			s.quiet = time.Duration(s.traffic.clocks.now()) > half
			if f.Name == "kill-all" && s.quiet {
				continue
			}
			from := s.traffic.clocks.now()
			err := f.do(ctx, s)
			h := happened{Fault: f.Name, From: time.Duration(from), To: time.Duration(s.traffic.clocks.now())}
			if err != nil && ctx.Err() == nil {
				h.Error = err.Error()
			}
			s.mu.Lock()
			s.did[f.Name]++
			s.log = append(s.log, h)
			s.mu.Unlock()
			if h.Error != "" {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
		}
	}
}

// lasts is how long a fault lasts.
func (s *storm) lasts() time.Duration {
	return s.pace/10 + time.Duration(s.random.Int64N(int64(s.pace)))
}

// node is one of them. The witness, whose memory is watched, is not ended in the second half of a run.
func (s *storm) node(ends bool) *node {
	if ends && s.quiet {
		return s.fleet.nodes[s.random.IntN(len(s.fleet.nodes)-1)]
	}
	return s.fleet.nodes[s.random.IntN(len(s.fleet.nodes))]
}

// again starts a node that has ended, also when the run is over.
func (s *storm) again(ctx context.Context, n *node, after time.Duration) error {
	clock.Sleep(ctx, after)
	return n.start(context.WithoutCancel(ctx))
}

func killNode(ctx context.Context, s *storm) error {
	n := s.node(true)
	n.kill()
	return s.again(ctx, n, s.lasts())
}

func terminateNode(ctx context.Context, s *storm) error {
	n := s.node(true)
	if err := n.end(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	return s.again(ctx, n, s.lasts())
}

func killOwner(ctx context.Context, s *storm) error {
	for _, n := range s.fleet.nodes[:len(s.fleet.nodes)-1] {
		if n.owns(ctx) {
			n.kill()
			return s.again(ctx, n, s.lasts())
		}
	}
	// The owner is the witness: another one is killed.
	return killNode(ctx, &storm{fleet: s.fleet, traffic: s.traffic, random: s.random, pace: s.pace, quiet: true})
}

func killAll(ctx context.Context, s *storm) error {
	for _, n := range s.fleet.nodes {
		n.kill()
	}
	failed := make(chan error, len(s.fleet.nodes))
	for _, n := range s.fleet.nodes {
		go func() { failed <- n.start(context.WithoutCancel(ctx)) }()
	}
	var all error
	for range s.fleet.nodes {
		all = errors.Join(all, <-failed)
	}
	return all
}

func freezeNode(ctx context.Context, s *storm) error {
	n := s.node(false)
	if err := n.server.Freeze(); err != nil {
		return err
	}
	clock.Sleep(ctx, s.lasts())
	return n.server.Thaw()
}

func freezeRedis(ctx context.Context, s *storm) error {
	if err := s.fleet.redis.Freeze(); err != nil {
		return err
	}
	clock.Sleep(ctx, s.lasts())
	return s.fleet.redis.Thaw()
}

// restartRedis ends Redis, which loses all that it has: every key has all its permits again.
func restartRedis(ctx context.Context, s *storm) error {
	t := s.traffic
	defer t.history.begin()()
	from := t.clocks.now()
	s.fleet.redis.Kill()
	clock.Sleep(ctx, s.lasts())
	err := s.fleet.redis.Start(context.WithoutCancel(ctx))
	to := t.clocks.now()
	for _, p := range t.all {
		if p.scope != shared && p.scope != leased {
			continue
		}
		for _, m := range t.history.marks(p.name) {
			for i := range p.limits {
				if l := &p.limits[i]; l.name == m.Limit {
					t.history.add(p, l, m.Key, "", bounds.Event{Sent: from, Received: to, N: l.burst, Kind: bounds.MayReturn})
				}
			}
		}
	}
	return err
}

func cutRedis(ctx context.Context, s *storm) error {
	link, how := s.node(false).toStore, servers.Cut(1+s.random.IntN(2))
	link.Set(how)
	clock.Sleep(ctx, s.lasts())
	link.Set(servers.Whole)
	return nil
}

// cutNode has the others not reach a node.
func cutNode(ctx context.Context, s *storm) error {
	n, how := s.node(false), servers.Cut(1+s.random.IntN(2))
	for _, l := range n.inward {
		l.Set(how)
	}
	clock.Sleep(ctx, s.lasts())
	for _, l := range n.inward {
		l.Set(servers.Whole)
	}
	return nil
}

func cutClients(_ context.Context, s *storm) error {
	if c := s.node(false).use(); c != nil {
		c.conns.cut()
	}
	return nil
}

// reload changes limits while they are used, on all nodes.
func reload(ctx context.Context, s *storm) error {
	for _, n := range s.fleet.nodes {
		if err := n.configure(func(v *variant) { v.doubled = !v.doubled }); err != nil {
			return err
		}
		if status := n.reload(ctx); status != http.StatusOK && status != 0 {
			return fmt.Errorf("a reload of %s was answered with status %d", n.setup.name, status)
		}
	}
	return nil
}

// reloadBad has a node read a file with a mistake, and then a right one.
func reloadBad(ctx context.Context, s *storm) error {
	n := s.node(false)
	if err := n.configure(func(v *variant) { v.broken = true }); err != nil {
		return err
	}
	status := n.reload(ctx)
	if err := n.configure(func(v *variant) { v.broken = false }); err != nil {
		return err
	}
	if status != http.StatusUnprocessableEntity && status != 0 {
		return fmt.Errorf("%s answered a file with a mistake with status %d", n.setup.name, status)
	}
	if status := n.reload(ctx); status != http.StatusOK && status != 0 {
		return fmt.Errorf("a reload of %s was answered with status %d", n.setup.name, status)
	}
	return nil
}

// reload has a node read its configuration. It returns 0 if the node cannot be asked.
func (n *node) reload(ctx context.Context) int {
	c := n.use()
	if c == nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, late)
	defer cancel()
	status, err := c.admin.call(ctx, http.MethodPost, "/v1/reload", nil, nil)
	if err != nil {
		return 0
	}
	return status
}

// overridden is for how long, in seconds, and what is allowed beside.
const (
	overrideFor = 2
	unlimited   = 1_000_000_000
)

// override has an operator override the limit of a key on one node, and end that or not.
func override(ctx context.Context, s *storm) error {
	n := s.node(false)
	c := n.use()
	if c == nil {
		return nil
	}
	name := "local-override"
	p := s.traffic.policy(name)
	asked, cancel := context.WithTimeout(ctx, late)
	defer cancel()
	body := map[string]any{"policy": name, "key": "hot", "unlimited": true, "for": overrideFor, "reason": "soak"}
	defer s.traffic.history.begin()()
	from := s.traffic.clocks.now()
	status, err := c.admin.call(asked, http.MethodPost, "/v1/admin/override", body, nil)
	s.traffic.history.add(p, &p.limits[0], "hot", c.who, bounds.Event{
		Sent: from, Received: s.traffic.clocks.now() + int64(overrideFor*time.Second+late), N: unlimited, Kind: bounds.MayReturn,
	})
	switch {
	case err != nil:
		return nil // a connection that is lost is none of its faults
	case status == http.StatusNotFound || status == http.StatusNotImplemented:
		s.note("this weir has no overrides: none were made")
	case status != http.StatusOK:
		return fmt.Errorf("an override was answered with status %d", status)
	}
	return nil
}

// note keeps what the report should say, once.
func (s *storm) note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.notes {
		if strings.EqualFold(n, text) {
			return
		}
	}
	s.notes = append(s.notes, text)
}

// done are the faults that were done.
func (s *storm) done() (did map[string]int, all []happened, notes []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	did = make(map[string]int, len(s.did))
	maps.Copy(did, s.did)
	return did, append([]happened(nil), s.log...), append([]string(nil), s.notes...)
}
