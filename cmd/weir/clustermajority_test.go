//go:build linux

package main_test

import (
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
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
