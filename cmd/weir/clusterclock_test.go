//go:build linux && amd64

package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
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

// TestClusterSteppedClocks sets the clocks of servers by an hour, forward and back.
func TestClusterSteppedClocks(t *testing.T) {
	t.Parallel()
	program := steppedProgram(t)
	t.Run("owners", func(t *testing.T) {
		t.Parallel()
		ownersAreStepped(t, newFaultCluster(t, program, true))
	})
	t.Run("one server", func(t *testing.T) {
		t.Parallel()
		oneIsStepped(t, program)
	})
}

// steppedPolicies are kept in memory and, in each way that there is, in Redis.
const steppedPolicies = `
policies:
  local-hour: {limit: 300/h, burst: 300}
  local-second: {limit: 10/s, burst: 10}
  coherent-hour: {limit: 300/h, burst: 300, consistency: coherent}
  coherent-second: {limit: 10/s, burst: 10, consistency: coherent}
  leased-hour: {limit: 300/h, burst: 300, consistency: leased}
  leased-second: {limit: 10/s, burst: 10, consistency: leased}
  optimistic-hour: {limit: 300/h, burst: 300, consistency: optimistic}
  optimistic-second: {limit: 10/s, burst: 10, consistency: optimistic}
  locked: {limit: 10/s, burst: 10, lockout: {refusals: 1, within: 1h, for: 3s}}
`

// oneIsStepped: the clock of a server is set whose limits are in its memory and in Redis, while a key is locked out and another one
// has an override.
func oneIsStepped(t *testing.T, program string) {
	t.Helper()
	redis := startRedis(t)
	dir := t.TempDir()
	n := &faultNode{t: t, name: "server", path: filepath.Join(dir, "weir.yaml"), program: program}
	writeConfig(t, n.path, strings.Replace(patient(redis.url()), "replicas: 3", "replicas: 1", 1)+strings.TrimPrefix(steppedPolicies, "\n"))
	n.withClock(filepath.Join(dir, "clock"))
	c := &faultCluster{t: t, began: time.Now(), client: &http.Client{Timeout: time.Minute}, nodes: []*faultNode{n}}
	n.start()
	if !c.ready(n) {
		t.Fatal(n.said())
	}
	ways := []string{"local", "coherent", "leased", "optimistic"}
	for i, by := range []time.Duration{time.Hour, 0, -time.Hour, 0} {
		key := fmt.Sprint("key ", i)
		for _, way := range ways {
			c.want(n, way+"-hour", key, 200)
			c.exhaust(way+"-hour", key, n)
			c.want(n, way+"-second", key, 10)
		}
		got := weir(t, nil, "admin", "override", "--policy", "local-hour", "--key", "override", "--unlimited", "--for", "3s",
			"--reason", "a test", "--server", "http://"+n.address)
		if got.status != 0 {
			t.Fatal(got.stderr)
		}
		lockedOut := time.Now()
		eventually(t, "the key is locked out", func() bool {
			status, body := c.get(n, http.MethodPost, "/v1/check", fmt.Sprintf(`{"policy":"locked","key":%q,"cost":10}`, key))
			return status == http.StatusTooManyRequests && strings.Contains(body, "locked")
		})
		n.step(by)
		set := time.Now()
		for _, way := range ways {
			c.want(n, way+"-second", key, 10)
			c.exhaust(way+"-hour", key, n)
		}
		c.want(n, "locked", key, 10)
		if took := time.Since(lockedOut); took < 3*time.Second {
			t.Errorf("a key that is locked out for 3s was granted permits after %v", took)
		}
		eventually(t, "the override has ended", func() bool {
			status, _ := c.get(n, http.MethodPost, "/v1/check", `{"policy":"local-hour","key":"override","cost":300}`)
			return status == http.StatusTooManyRequests
		})
		if took := time.Since(set); took > frozenAfter {
			t.Errorf("after a step to %v permits, lockouts and overrides took %v", by, took)
		}
		c.check()
	}
}

// ownersAreStepped: the clock of a node is set while it owns the limits, and before it does.
func ownersAreStepped(t *testing.T, c *faultCluster) {
	t.Helper()
	for round := range min(faultRounds(t, 1), 10) {
		for i := range 4 { // an hour forward, back, an hour back and forward again, if the same node owns the limits
			key := fmt.Sprintf("owner %d %d", round, i)
			owner, by := c.owner(), time.Duration(0)
			if owner.stepped == 0 {
				by = []time.Duration{time.Hour, -time.Hour}[i/2]
			}
			c.use(key)
			was := strings.Count(owner.said(), "the clock of this node was set")
			before, _ := c.cluster(owner)
			owner.step(by)
			c.back(key)
			eventually(t, "the owner says that its clock was set", func() bool {
				c.take(owner, "second", "watched", 1)
				now, ok := c.cluster(owner)
				lost := !before.Owns || ok && now.Epoch != before.Epoch // as it can on a machine that stands still
				return lost || strings.Count(owner.said(), "the clock of this node was set") > was
			})
			c.check()
		}
		for i, by := range []time.Duration{time.Hour, -time.Hour} {
			key := fmt.Sprintf("other %d %d", round, i)
			owner := c.owner()
			c.use(key)
			before, _ := c.cluster(owner)
			for _, n := range c.others(owner) { // one of them is the next
				n.step(by)
			}
			owner.end([]syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[i])
			next := c.owner(owner)
			c.back(key, owner)
			eventually(t, "the owner says that its clock differs", func() bool {
				c.take(next, "second", "watched", 1)
				return !before.Owns || strings.Contains(next.said(), "the clock of this node differs from that of the owners before")
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
