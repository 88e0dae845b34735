//go:build linux && amd64

package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// steppedProgram is the program with a clock that can be set.
func steppedProgram(t *testing.T) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	from := filepath.Join(here, "testdata", "steppedclock")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(here, "steppedclock.go"):      filepath.Join(from, "clock.go"),
		filepath.Join(here, "steppedclock_amd64.s"): filepath.Join(from, "clock_amd64.s"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "weir")
	writeConfig(t, filepath.Join(dir, "overlay.json"), string(overlay))
	if err := build(path, false, "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+filepath.Join(dir, "overlay.json")); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestClusterSteppedClocks: the clock of a node is set by an hour, forward and back, while it owns the limits, and before it does.
func TestClusterSteppedClocks(t *testing.T) {
	t.Parallel()
	c := newFaultCluster(t, steppedProgram(t), true)
	for round := range min(faultRounds(t, 1), 10) {
		for i, by := range []time.Duration{time.Hour, 0, -time.Hour, 0} { // from the one before
			key := fmt.Sprintf("owner %d %d", round, i)
			owner := c.owner()
			c.use(key)
			was := strings.Count(owner.said(), "the clock of this node was set")
			owner.step(by)
			c.back(key)
			eventually(t, "the owner says that its clock was set", func() bool {
				c.take(owner, "second", "watched", 1)
				return strings.Count(owner.said(), "the clock of this node was set") > was
			})
			c.check()
		}
		for i, by := range []time.Duration{time.Hour, -time.Hour} {
			key := fmt.Sprintf("other %d %d", round, i)
			owner := c.owner()
			c.use(key)
			for _, n := range c.others(owner) { // one of them is the next
				n.step(by)
			}
			owner.end([]syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[i])
			next := c.owner(owner)
			c.back(key, owner)
			eventually(t, "the owner says that its clock differs", func() bool {
				c.take(next, "second", "watched", 1)
				return strings.Contains(next.said(), "the clock of this node differs from that of the owners before")
			})
			owner.start()
			c.ready(owner)
			c.back(key)
			for _, n := range c.nodes {
				n.step(0)
			}
			c.check()
		}
	}
}

// frozenAfter is how long a limit of 10 a second may grant nothing, on a machine that stands still at times.
const frozenAfter = 20 * time.Second

// use uses up all permits of a key.
func (c *faultCluster) use(key string) {
	c.t.Helper()
	for i, policy := range []string{"hour", "month"} {
		c.want(c.nodes[i], policy, key, 200)
		c.exhaust(policy, key, c.nodes...)
	}
	c.want(c.nodes[2], "second", key, 10)
}

// back waits for what is back within a second, of all nodes but these, and that nothing else is.
func (c *faultCluster) back(key string, but ...*faultNode) {
	c.t.Helper()
	for _, n := range c.others(but...) {
		begin := time.Now()
		c.want(n, "second", key, 10)
		if took := time.Since(begin); took > frozenAfter {
			c.t.Errorf("%s: what is back after a second was granted after %v", n.name, took)
		}
	}
	for _, policy := range []string{"hour", "month"} {
		c.exhaust(policy, key, c.others(but...)...)
	}
}
