package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// TestClusterFailover kills a master of a cluster under load, and stops its process in another round: its replica becomes the
// master, and calls go there by themselves, those of several slots too. What had not reached the replica is granted once more,
// and no more.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	for _, kill := range []bool{true, false} {
		name := "master stopped"
		if kill {
			name = "master killed"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const timeout = 250 * time.Millisecond
			c := startCluster(t, 1)
			l := newLoad(t, faultCharges(50, 50_000), c.open(t, Options{Timeout: timeout}), c.open(t, Options{Timeout: timeout}))
			l.requests = append(l.requests, []int{4, 5}, []int{5, 6, 7}, []int{4, 7}) // of several slots
			l.reserving = 5
			slot := slotOf("{" + l.charges[4].Key + "}")
			l.start(16).more(1000)
			elections, behind := c.epoch(0), int64(0)
			for round := range rounds(t) {
				if round > 0 {
					c.settle()
				}
				old := c.owner(0, slot)
				followed := l.followed(c.servers[old], c.replicas(c.servers[old])...)
				if kill {
					c.servers[old].kill()
				} else {
					c.servers[old].stop()
				}
				behind += l.admittedSum() - followed
				began := time.Now()
				failed := l.failed.Load()
				until(t, "calls fail", func() bool { return l.failed.Load() > failed+20 })
				asked := (old + 1) % masters
				for i, s := range c.servers {
					if i != old {
						s.ask("CONFIG", "SET", "cluster-node-timeout", "1000")
					}
				}
				until(t, "the replica is the master", func() bool { return c.owner(asked, slot) != old })
				took := l.admitted[4].Load()
				until(t, "permits of the slot are granted", func() bool { return l.admitted[4].Load() > took+20 })
				for _, s := range l.stores { // so that none of them goes to the old one, which may have lost everything
					until(t, "the store knows the new master", func() bool {
						_, err := store.Inspect(context.Background(), s, l.charges[4])
						return err == nil
					})
				}
				t.Logf("%s: permits of its slots are granted again after %v", name, time.Since(began).Round(time.Millisecond))
				if kill {
					c.servers[old].start()
				} else {
					c.servers[old].resume()
				}
				l.more(2000) // whatever the old master believes
				c.elect(false)
			}
			l.stop()
			sum := l.drain(c.open(t, Options{}))
			l.report(name, sum)
			elections = c.epoch(0) - elections // more than one a round where the machine stood still
			if most := float64(1 + elections); sum.most > most {
				t.Errorf("%.3f of a limit were admitted, want at most %v", sum.most, most)
			}
			if sum.above > behind+elections*2000 { // replication follows within the round trips that were under way
				t.Errorf("%d above the limit, of which %d had not reached the replica", sum.above, behind)
			}
		})
	}
}

// inSlot are texts of keys in a slot.
func inSlot(slot uint16, n int) []string {
	var texts []string
	for i := 0; len(texts) < n; i++ {
		if text := strconv.Itoa(i); slotOf("{"+text+"}") == slot {
			texts = append(texts, text)
		}
	}
	return texts
}

// TestClusterSlotMoves moves a slot from master to master under load, key by key: calls are answered or fail, and nothing is
// allowed above the limit. Calls of several keys of the slot have to wait until the keys are together again.
func TestClusterSlotMoves(t *testing.T) {
	t.Parallel()
	const timeout = 250 * time.Millisecond
	c := startCluster(t, 0)
	charges := faultCharges(50, 50_000)
	slot := slotOf("{0}")
	for i, text := range inSlot(slot, len(charges)) {
		charges[i].Key = text
	}
	charges = append(charges, charges[4]) // another limit of the same key
	charges[8].Policy = "other"
	l := newLoad(t, charges, c.open(t, Options{Timeout: timeout}), c.open(t, Options{Timeout: timeout}))
	l.requests = append(l.requests, []int{4, 8}, []int{5, 6})
	l.reserving = 5
	l.start(16).more(1000)
	moves := 6 * rounds(t)
	from := c.owner(0, slot)
	for range moves {
		to := (from + 1) % masters
		source, target, number := c.servers[from], c.servers[to], strconv.Itoa(int(slot))
		target.ask("CLUSTER", "SETSLOT", number, "IMPORTING", c.ids[from])
		source.ask("CLUSTER", "SETSLOT", number, "MIGRATING", c.ids[to])
		for {
			key := source.ask("CLUSTER", "GETKEYSINSLOT", number, "1")
			if key == "" {
				break
			}
			source.ask("MIGRATE", "127.0.0.1", strconv.Itoa(target.port), key, "0", "50000")
			l.more(20) // with some of the keys here and others there
		}
		for _, s := range []*server{target, source, c.servers[3-from-to]} {
			s.ask("CLUSTER", "SETSLOT", number, "NODE", c.ids[to])
		}
		l.more(200)
		l.recovery(0, 1)
		from = to
	}
	l.stop()
	for _, s := range l.stores {
		until(t, "the store knows where the slot is", func() bool {
			for i := range charges {
				if store.Take(context.Background(), s, charges[i:i+1], make([]weir.Decision, 1)) != nil {
					return false
				}
			}
			return true
		})
	}
	sum := l.drain(c.open(t, Options{}))
	l.report(fmt.Sprint("slot moved ", moves, " times"), sum)
	if sum.above > 0 {
		t.Errorf("%d above the limit", sum.above)
	}
}

// TestClusterNodeStopped stops a master that has no replica until the calls for its keys have failed: those for keys of the others
// are answered as before.
func TestClusterNodeStopped(t *testing.T) {
	t.Parallel()
	const timeout = 3 * time.Second
	c := startCluster(t, 0, "--cluster-require-full-coverage", "no")
	s := c.open(t, Options{Timeout: timeout})
	here, there := splitByMaster()
	of := newLoad(t, here, s).start(16)
	stuck := newLoad(t, there, s).start(16)
	of.more(500)
	stuck.more(500)
	c.servers[2].stop()
	failed, before, refused := stuck.failed.Load(), of.answers(), of.failed.Load()
	var answered, others int64
	until(t, "calls fail, and next to none of those for keys of the others", func() bool {
		answered, others = of.answers()-before, of.failed.Load()-refused // where the machine stood still, some do as well
		return stuck.failed.Load() >= failed+16 && answered > max(1000, 20*others)
	})
	c.servers[2].resume()
	stuck.more(100)
	of.stop()
	stuck.stop()
	t.Logf("a node stopped: of the others' keys %d calls were answered meanwhile and %d failed, without service %v, slowest call %v; "+
		"of its own %d failed, without service %v",
		answered, others, time.Duration(of.gap.Load()), time.Duration(of.slowest.Load()), stuck.failed.Load(), time.Duration(stuck.gap.Load()))
}

// TestClusterPartIsAway takes a master away that has no replica: the breaker of a fleet stays closed, so that the store decides
// about keys of the others as before, calls for its own keys fail at once after a few have waited, and are decided by the store
// again when it is back.
func TestClusterPartIsAway(t *testing.T) {
	t.Parallel()
	for _, kill := range []bool{true, false} {
		name := "stopped"
		if kill {
			name = "killed"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const timeout = time.Second
			c := startCluster(t, 0, "--cluster-require-full-coverage", "no")
			s := c.open(t, Options{Timeout: timeout})
			f, err := store.NewFleet(s, store.FleetOptions{
				Replicas: store.ReplicasOptions{Disabled: true},
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
			here, there := splitByMaster()
			of, stuck := newLoad(t, here, f).start(16), newLoad(t, there, f).start(16)
			of.more(500)
			stuck.more(500)
			opened := f.Stats().Breaker.Opened
			if kill {
				c.servers[2].kill()
			} else {
				c.servers[2].stop()
			}
			failed := stuck.failed.Load()
			until(t, "each caller has failed", func() bool { return stuck.failed.Load() >= failed+32 })
			began, answers, refused := time.Now(), of.answers(), of.failed.Load()
			sent, calls := 0, 0
			for ; (calls < 200 || of.answers() < answers+2000) && time.Since(began) < 20*timeout; calls++ {
				err := store.Take(context.Background(), s, there[:1], make([]weir.Decision, 1))
				if !errors.Is(err, store.ErrPartUnavailable) {
					t.Fatal(err)
				}
				if !errors.Is(err, errSpared) {
					sent++
				}
				time.Sleep(time.Millisecond) // as a caller does something with the answer
			}
			if most := 1 + int(time.Since(began)/timeout); sent > most || calls < 200 {
				t.Errorf("%d of %d calls were sent, want at most %d of 200", sent, calls, most)
			}
			answered, others := of.answers()-answers, of.failed.Load()-refused
			if s := f.Stats().Breaker; answered < 20*others || s.Opened != opened {
				t.Errorf("of the others' keys %d calls were answered and %d failed: %+v", answered, others, s)
			}
			if kill {
				c.servers[2].start()
			} else {
				c.servers[2].resume()
			}
			back := time.Now()
			stuck.more(100)
			took := time.Since(back)
			of.stop()
			stuck.stop()
			t.Logf("of the others' keys %d calls were answered and %d failed, slowest call %v; %d of %d calls of its own were sent; "+
				"they are answered %v after it is back", answered, others, time.Duration(of.slowest.Load()), sent, calls, took)
		})
	}
}

// splitByMaster are charges of keys of the first two masters, and of the third.
func splitByMaster() (here, there []store.Charge) {
	for i := 0; len(here) < 4 || len(there) < 4; i++ {
		charge := store.Charge{Policy: "p", Key: strconv.Itoa(i), Limit: yearly(1_000_000), N: 1}
		if int(slotOf("{"+charge.Key+"}"))/(16384/masters+1) == 2 {
			there = append(there, charge)
		} else {
			here = append(here, charge)
		}
	}
	return here, there
}

// TestClusterCallerDies leaves charges in several slots reserved, as callers do that die before they commit: they are given back
// when the reservations expire.
func TestClusterCallerDies(t *testing.T) {
	t.Parallel()
	s := startCluster(t, 0).open(t, Options{})
	s.virtual.Store(time.Now().UnixMicro())
	charges := make([]store.Charge, 6)
	for i := range charges {
		charges[i] = store.Charge{Policy: "p", Key: strconv.Itoa(i), Limit: yearly(1000), N: 1}
	}
	var died atomic.Int64
	const deaths = 20
	for range deaths {
		parts, err := s.parts(charges)
		if err != nil || len(parts) != len(charges) {
			t.Fatal(len(parts), err)
		}
		id := newID()
		for k := range parts {
			parts[k].decisions = make([]weir.Decision, 1)
			if err := s.reserve(context.Background(), &parts[k], id, time.Second); err != nil {
				t.Fatal(err)
			}
			if k == int(died.Load())%len(parts) {
				break // with some of the slots reserved, or all
			}
		}
		died.Add(1)
	}
	d := make([]weir.Decision, len(charges))
	if err := store.Peek(context.Background(), s, charges, d); err != nil || d[0].Remaining != 1000-deaths {
		t.Errorf("left %d while they are reserved, want %d; %v", d[0].Remaining, 1000-deaths, err)
	}
	s.virtual.Add(int64(time.Second) / microsecond)
	if err := store.Peek(context.Background(), s, charges, d); err != nil {
		t.Fatal(err)
	}
	for i := range d {
		if d[i].Remaining != 1000 {
			t.Errorf("key %d: %d are left when they have expired", i, d[i].Remaining)
		}
	}
	t.Logf("%d callers died with up to %d slots reserved: everything came back", deaths, len(charges))
}
