//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

var ownerKnown = regexp.MustCompile(`(?m)^weir_cluster_owner_known\{.*\} (\d)$`)

// unreached checks that a node says that it reaches no owner, or that it reaches one, wherever an operator looks.
func (c *faultCluster) unreached(n *faultNode, unreached bool) {
	c.t.Helper()
	status, known, said := http.StatusOK, "1", "which reaches an owner"
	if unreached {
		status, known, said = http.StatusServiceUnavailable, "0", "which reaches no owner"
	}
	eventually(c.t, "the probe and the metric of "+n.name+", "+said, func() bool { // one that has just joined is ready at once
		got, _ := c.get(n, http.MethodGet, "/readyz", "")
		_, text := c.get(n, http.MethodGet, "/metrics", "")
		value := ownerKnown.FindStringSubmatch(text)
		return got == status && value != nil && value[1] == known
	})
	for command, what := range map[string]string{"replicas": "NO OWNER CAN BE REACHED for ", "status": "no owner can be reached, the last one was "} {
		got := weir(c.t, nil, "admin", command, "--server", "http://"+n.address)
		if got.status != 0 || strings.Contains(got.stdout, what) != unreached {
			c.t.Errorf("%s: weir admin %s of one %s\n%v", n.name, command, said, got)
		}
	}
	if unreached {
		if got := c.take(n, "hour", "majority", 1); got != http.StatusServiceUnavailable {
			c.t.Errorf("%s: %d", n.name, got)
		}
	}
}

// TestNoMajority: a node that is left alone is not ready, and says that there is no owner, also if it was the owner itself. It is
// ready again once there is a majority.
func TestNoMajority(t *testing.T) {
	t.Parallel()
	c := newFaultCluster(t, plain, false)
	former := c.owner()
	others := c.others(former)
	for _, n := range others {
		n.end(syscall.SIGKILL)
	}
	c.unreached(former, true)
	others[0].start()
	c.unreached(former, false)
	c.unreached(others[0], false)
	owner := c.owner(others[1])
	left := c.others(owner, others[1])[0]
	owner.end(syscall.SIGKILL)
	c.unreached(left, true)
	others[1].start()
	c.unreached(left, false)
}

var waitedForEtcd = regexp.MustCompile("could not be written.*(timed out|deadline exceeded)")

// TestLeaderKilled: the node that leads etcd is killed, which is not the owner. What the owner had asked it to write is asked of the
// next leader, or fails, once there is one: it does not wait for as long as etcd does.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	c := newFaultCluster(t, plain, false)
	owner := c.owner()
	var leader *faultNode
	eventually(t, "another node than the owner leads", func() bool {
		var all []operator.Member
		status, text := c.get(owner, http.MethodGet, operator.MembersPath, "")
		if status != http.StatusOK || json.Unmarshal([]byte(text), &all) != nil {
			return false
		}
		for _, m := range all {
			for _, n := range c.others(owner) {
				if m.Leads && m.Name == n.name {
					leader = n
				}
			}
		}
		return leader != nil
	})
	var asked sync.WaitGroup
	killed := make(chan struct{})
	for i := range 8 {
		asked.Go(func() {
			for j := range 50 {
				if j == 10 && i == 0 {
					close(killed)
				}
				if got := c.take(owner, "hour", fmt.Sprint("leader ", i, " ", j), 1); got != http.StatusOK && got != http.StatusServiceUnavailable {
					t.Errorf("%d, %d: %d", i, j, got)
				}
			}
		})
	}
	<-killed
	leader.end(syscall.SIGKILL)
	asked.Wait()
	eventually(t, "limits are decided", func() bool { return c.take(owner, "hour", "afterwards", 1) == http.StatusOK })
	for _, n := range c.others(leader) {
		if said := n.said(); waitedForEtcd.MatchString(said) {
			t.Errorf("%s has waited for a leader that was none any more:\n%s", n.name, said)
		}
	}
}
