package redis

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/programtest"
)

// cluster is three masters that share the slots, and their replicas.
type cluster struct {
	tb      testing.TB
	servers []*server // the masters, their first replicas, their second ones
	ids     []string
	buses   []int
}

const masters = 3

// startCluster starts a cluster in which each master has so many replicas.
func startCluster(tb testing.TB, replicas int, args ...string) *cluster {
	tb.Helper()
	c := &cluster{tb: tb}
	nodes := masters * (1 + replicas)
	for range nodes {
		bus := programtest.FreePort(tb) // the nodes talk to each other at a port of its own
		s := startServer(tb, append([]string{
			"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus), "--cluster-node-timeout", "5000",
			"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--cluster-replica-validity-factor", "0",
		}, args...)...)
		c.servers = append(c.servers, s)
		c.ids = append(c.ids, s.ask("CLUSTER", "MYID"))
		c.buses = append(c.buses, bus)
		s.ask("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(len(c.servers)))
	}
	for i := range masters {
		c.servers[i].ask("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(16384*i/masters), strconv.Itoa(16384*(i+1)/masters-1))
	}
	known := "cluster_known_nodes:" + strconv.Itoa(nodes)
	var met time.Time
	until(tb, "the nodes know each other", func() bool {
		if time.Since(met) > 20*time.Second { // one that does not answer in time, as the machine stands still, is forgotten
			for i := 1; i < nodes; i++ {
				c.servers[0].ask("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(c.servers[i].port), strconv.Itoa(c.buses[i]))
			}
			met = time.Now()
		}
		for _, s := range c.servers {
			if !strings.Contains(s.ask("CLUSTER", "INFO"), known) {
				return false
			}
		}
		return true
	})
	for i := masters; i < nodes; i++ {
		until(tb, "the replica knows its master", func() bool {
			_, err := c.servers[i].try("CLUSTER", "REPLICATE", c.ids[i%masters])
			return err == nil
		})
	}
	c.settle()
	c.elect(false)
	c.settle() // no server may be taken for dead now: that would last
	return c
}

// elect has replicas take over from masters that do not answer for a second, or no replica: a busy machine may well take a second.
func (c *cluster) elect(soon bool) {
	c.tb.Helper()
	timeout := "60000"
	if soon {
		timeout = "1000"
	}
	for _, s := range c.servers {
		if s.cmd != nil {
			s.ask("CONFIG", "SET", "cluster-node-timeout", timeout)
		}
	}
}

// epoch counts the elections, with one server at least.
func (c *cluster) epoch(asked int) int64 {
	c.tb.Helper()
	_, after, _ := strings.Cut(c.servers[asked].ask("CLUSTER", "INFO"), "cluster_current_epoch:")
	text, _, _ := strings.Cut(after, "\r\n")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		c.tb.Fatal(err)
	}
	return n
}

// replicas are the servers that follow a master.
func (c *cluster) replicas(master *server) []*server {
	c.tb.Helper()
	var all []*server
	for _, s := range c.servers {
		if s != master && s.info("replication", "role") == "slave" && s.info("replication", "master_port") == strconv.Itoa(master.port) {
			all = append(all, s)
		}
	}
	return all
}

// settle waits until all nodes agree that all is well.
func (c *cluster) settle() {
	c.tb.Helper()
	until(c.tb, "the nodes agree", func() bool {
		for _, s := range c.servers {
			if !strings.Contains(s.ask("CLUSTER", "INFO"), "cluster_state:ok") {
				return false
			}
			replicas := 0
			for line := range strings.Lines(s.ask("CLUSTER", "NODES")) {
				if strings.Contains(line, "fail") || strings.Contains(line, "handshake") {
					return false
				}
				if strings.Contains(line, "slave") {
					replicas++
				}
			}
			if replicas != len(c.servers)-masters {
				return false
			}
			text := s.ask("INFO", "replication")
			if strings.Contains(text, "role:slave") && !strings.Contains(text, "master_link_status:up") ||
				strings.Contains(text, "state=wait_bgsave") || strings.Contains(text, "state=send_bulk") ||
				strings.Count(text, "state=online") != strings.Count(text, ",offset=") {
				return false
			}
		}
		return true
	})
}

// owner is the place of the node that the node at asked says is the master of a slot.
func (c *cluster) owner(asked int, slot uint16) int {
	c.tb.Helper()
	for line := range strings.Lines(c.servers[asked].ask("CLUSTER", "NODES")) {
		fields := strings.Fields(line)
		for _, slots := range fields[min(8, len(fields)):] {
			var from, to int
			n, _ := fmt.Sscanf(slots, "%d-%d", &from, &to)
			if n == 1 {
				to = from
			}
			if n == 0 || int(slot) < from || int(slot) > to {
				continue
			}
			for i, id := range c.ids {
				if id == fields[0] {
					return i
				}
			}
		}
	}
	return -1
}

// open is a store that knows two masters and a replica, if there is any.
func (c *cluster) open(tb testing.TB, o Options) *Store {
	tb.Helper()
	o.URL = fmt.Sprintf("%s?addr=%s&addr=%s", c.servers[0].url(), c.servers[1].address(), c.servers[len(c.servers)-1].address())
	return open(tb, o)
}
