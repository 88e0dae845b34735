//go:build linux

package etcd_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable/spectest"
)

// TestSpecOfThreeProcesses: a cluster behaves as its limits must, seen from a node that is never the owner, whose owners are killed.
// No other owner may go: a request that waits is told so, and one that does not waits a second for the next owner. So the TTL is
// longer than a busy machine keeps a process waiting.
func TestSpecOfThreeProcesses(t *testing.T) {
	t.Parallel()
	spectest.Run(t, func(t *testing.T) spectest.Subject {
		c := newCluster(t, "spec", nodeConfig{
			TTL: 10 * time.Second, OwnerWait: longest, WriteTimeout: longest, Heartbeat: calm,
		}, plain)
		asked := []spectest.Asked{c.follower}
		c.serves()
		return spectest.Subject{Asked: asked, Again: func(t *testing.T) []spectest.Asked {
			t.Helper()
			before := c.follower.Ownership().Epoch
			c.owner().kill()
			c.until("there is a new owner", func() bool {
				now := c.follower.Ownership()
				return now.Epoch > before && now.Address != ""
			})
			c.startAll()
			c.serves()
			return asked
		}}
	})
}

// serves waits until the node in this process is granted permits.
func (c *cluster) serves() {
	c.tb.Helper()
	r := newLoadConfig(0).request(busyKey)
	r.N = 1
	c.until("permits are granted", func() bool { return spectest.Acquire(c.tb.Context(), c.follower, r).Reason == weir.ReasonNone })
}
