package redis

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// lane is a queue of requests with senders of its own: one for each master of a cluster, so that one that does not answer does
// not keep the others' requests waiting, or else one for everything.
type lane struct {
	first, last *request
	wake        *sync.Cond
}

func (l *lane) add(r *request) {
	r.lane, r.before, r.behind = l, l.last, nil
	if l.last == nil {
		l.first = r
	} else {
		l.last.behind = r
	}
	l.last = r
}

func (l *lane) remove(r *request) {
	if r.before == nil {
		l.first = r.behind
	} else {
		r.before.behind = r.behind
	}
	if r.behind == nil {
		l.last = r.before
	} else {
		r.behind.before = r.before
	}
	r.lane, r.before, r.behind = nil, nil, nil
}

const (
	// mostLanes is how many lanes there are at most. The masters of a larger cluster share them.
	mostLanes = 64
	// lanesFor is how long it is believed which slots the masters have. It does not matter if that is wrong: requests of several
	// masters in a lane wait for each other, that is all.
	lanesFor = 5 * time.Second
	// lanesAgain is after how long it is asked again if no master has replied, or not about all slots: until then masters share
	// lanes.
	lanesAgain = 200 * time.Millisecond
)

// lanes are the lanes of a dispatcher.
type lanes struct {
	all []*lane // of the lock of the dispatcher
	// bySlot is the lane of every slot; nil if the server is no cluster.
	bySlot    atomic.Pointer[[slots]uint8]
	whole     atomic.Bool // that is known of all slots
	began     time.Time
	refreshed atomic.Int64 // when it was asked, in nanoseconds since began, whatever the wall clock is set to
	refreshes sync.WaitGroup
}

const slots = 16384

// start starts the senders.
func (d *dispatcher) start() {
	d.open(1)
	if d.client.Mode() == rueidis.ClientModeCluster {
		d.lanes.bySlot.Store(new([slots]uint8))
		d.lanes.began = time.Now()
		d.refresh()
	}
}

// open sees to it that there are n lanes.
func (d *dispatcher) open(n int) {
	d.lock.Lock()
	defer d.lock.Unlock()
	for !d.closed && len(d.lanes.all) < n {
		l := &lane{wake: sync.NewCond(&d.lock)}
		d.lanes.all = append(d.lanes.all, l)
		for range d.perLane {
			d.senders.Go(func() { d.send(l) })
		}
	}
}

// enqueue has a request sent, unless the dispatcher is closed.
func (d *dispatcher) enqueue(r *request) bool {
	at := 0
	if bySlot := d.lanes.bySlot.Load(); bySlot != nil {
		at = int(bySlot[slotOf(r.keys[0])])
		now := int64(time.Since(d.lanes.began))
		if was := d.lanes.refreshed.Load(); now-was > int64(lanesFor) && d.lanes.refreshed.CompareAndSwap(was, now) {
			d.lock.Lock()
			if !d.closed {
				d.lanes.refreshes.Go(d.refresh)
			}
			d.lock.Unlock()
		}
	}
	d.lock.Lock()
	if d.closed {
		d.lock.Unlock()
		return false
	}
	l := d.lanes.all[at]
	l.add(r)
	d.lock.Unlock()
	l.wake.Signal()
	return true
}

// refresh asks which slots the masters have, and again soon if that is not known of all slots afterwards.
func (d *dispatcher) refresh() {
	if !d.ask() {
		d.lanes.refreshed.Store(int64(time.Since(d.lanes.began) + lanesAgain - lanesFor))
	}
}

// ask asks which slots the masters have, and reports whether that is known of all slots now. If no master replies, all stays as
// it was.
func (d *dispatcher) ask() bool {
	ctx, cancel := context.WithTimeout(context.Background(), d.patience)
	defer cancel()
	ranges, err := d.client.Do(ctx, d.client.B().ClusterSlots().Build()).ToArray()
	if err != nil {
		return false
	}
	covered := int64(0)
	nodes := make(map[string][][2]int64) // ranges of slots of the masters
	for i := range ranges {
		fields, err := ranges[i].ToArray()
		if err != nil || len(fields) < 3 {
			return false
		}
		from, _ := fields[0].AsInt64()
		to, _ := fields[1].AsInt64()
		node, err := fields[2].ToArray()
		if err != nil || len(node) < 3 || from < 0 || to < from || to >= slots {
			return false
		}
		id, _ := node[2].ToString()
		nodes[id] = append(nodes[id], [2]int64{from, to})
		covered += to - from + 1
	}
	if covered < slots && d.lanes.whole.Load() {
		return false // a master that is away must not share the lane of another one
	}
	// In the order of their first slots, so that slots keep their lane when a replica takes over.
	order := slices.SortedFunc(maps.Values(nodes), func(a, b [][2]int64) int { return cmp.Compare(lowest(a), lowest(b)) })
	bySlot := new([slots]uint8)
	for at, ranges := range order {
		for _, r := range ranges {
			for slot := r[0]; slot <= r[1]; slot++ {
				bySlot[slot] = uint8(at % mostLanes)
			}
		}
	}
	d.open(min(len(order), mostLanes))
	d.lanes.bySlot.Store(bySlot)
	d.lanes.whole.Store(covered >= slots)
	return covered >= slots
}

func lowest(ranges [][2]int64) int64 {
	from := ranges[0][0]
	for _, r := range ranges {
		from = min(from, r[0])
	}
	return from
}
