package redis

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// watched are a master and its replicas that three sentinels watch, two of which must agree that the master is down.
type watched struct {
	tb        testing.TB
	servers   []*server // the first is the master in the beginning
	sentinels []*server
}

const (
	masterSet = "limits"
	// For how long a master may be silent, until it is about to fail: a busy machine may well take half a second.
	downAfter, downSoon = time.Minute, 500 * time.Millisecond
)

// startSentinels starts a master with so many replicas, and three sentinels.
func startSentinels(tb testing.TB, replicas int) *watched {
	tb.Helper()
	w := &watched{tb: tb}
	// A replica that has lost its master tries again at once, and one that is asked for a part of the stream gets it.
	args := []string{"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"}
	w.servers = append(w.servers, startServer(tb, args...))
	for range replicas {
		w.servers = append(w.servers, startServer(tb, append(args, "--replicaof", "127.0.0.1 "+strconv.Itoa(w.servers[0].port))...))
	}
	for _, s := range w.servers[1:] {
		until(tb, "the replica follows", func() bool { return s.info("replication", "master_link_status") == "up" })
	}
	for range 3 {
		s := newServer(tb)
		s.config = filepath.Join(s.dir, "sentinel.conf")
		s.args = []string{"--sentinel"}
		config := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nlogfile %s/log\nsentinel monitor %s 127.0.0.1 %d 2\n",
			s.port, s.dir, s.dir, masterSet, w.servers[0].port)
		config += fmt.Sprintf("sentinel down-after-milliseconds %s %d\nsentinel failover-timeout %[1]s 4000\n",
			masterSet, downAfter.Milliseconds())
		if err := os.WriteFile(s.config, []byte(config), 0o600); err != nil {
			tb.Fatal(err)
		}
		s.start()
		w.sentinels = append(w.sentinels, s)
	}
	w.settle()
	return w
}

// elect has the sentinels make another server the master if that does not answer for half a second, or for a minute.
func (w *watched) elect(soon bool) {
	w.tb.Helper()
	after := downAfter
	if soon {
		after = downSoon
	}
	for _, s := range w.sentinels {
		s.ask("SENTINEL", "SET", masterSet, "down-after-milliseconds", strconv.FormatInt(after.Milliseconds(), 10))
	}
}

// epoch counts the elections of masters.
func (w *watched) epoch() int64 {
	w.tb.Helper()
	n, err := strconv.ParseInt(pairs(w.sentinels[0].ask("SENTINEL", "MASTER", masterSet))["config-epoch"], 10, 64)
	if err != nil {
		w.tb.Fatal(err)
	}
	return n
}

// replicas are the servers that follow the master.
func (w *watched) replicas() []*server {
	master := w.master()
	return slices.DeleteFunc(slices.Clone(w.servers), func(s *server) bool { return s == master })
}

// settle waits until every sentinel knows the others and the replicas, and the replicas follow.
func (w *watched) settle() {
	w.tb.Helper()
	until(w.tb, "the sentinels know each other", func() bool {
		for _, s := range w.sentinels {
			state := pairs(s.ask("SENTINEL", "MASTER", masterSet))
			if state["num-other-sentinels"] != "2" || state["num-slaves"] != strconv.Itoa(len(w.servers)-1) || state["flags"] != "master" {
				return false
			}
		}
		return strings.Count(w.master().ask("INFO", "replication"), "state=online") == len(w.servers)-1
	})
}

// pairs are names and values on lines of their own.
func pairs(text string) map[string]string {
	lines := strings.Split(text, "\n")
	m := make(map[string]string)
	for i := 0; i+1 < len(lines); i += 2 {
		m[lines[i]] = lines[i+1]
	}
	return m
}

// master is the server that the sentinels say is the master.
func (w *watched) master() *server {
	w.tb.Helper()
	_, port, _ := strings.Cut(w.sentinels[0].ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterSet), "\n")
	for _, s := range w.servers {
		if strconv.Itoa(s.port) == port {
			return s
		}
	}
	w.tb.Fatalf("the master is at port %s", port)
	return nil
}

// agree waits until all sentinels say that another server than old is the master. One that has not heard of it yet would send
// callers back to old.
func (w *watched) agree(old *server) {
	w.tb.Helper()
	until(w.tb, "another is the master", func() bool {
		for _, s := range w.sentinels {
			_, port, _ := strings.Cut(s.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterSet), "\n")
			if port == strconv.Itoa(old.port) {
				return false
			}
		}
		return true
	})
}

// url names the sentinels.
func (w *watched) url() string {
	return fmt.Sprintf("redis://%s?addr=%s&addr=%s&master_set=%s",
		w.sentinels[0].address(), w.sentinels[1].address(), w.sentinels[2].address(), masterSet)
}

func (w *watched) open(tb testing.TB, o Options) *Store {
	tb.Helper()
	o.URL = w.url()
	return open(tb, o)
}
