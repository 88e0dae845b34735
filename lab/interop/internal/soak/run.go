//go:build linux

// Package soak runs three nodes of weir with a Redis under mixed traffic, and does to them whatever can befall servers. Then it
// checks that every limit was kept: nothing was allowed that was not there, and nothing refused that was.
package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/weirhq/weir/internal/bounds"
	"github.com/weirhq/weir/lab/interop/internal/servers"
)

// Options are those of [Run].
type Options struct {
	// Program is the path of weir.
	Program string
	// Duration is for how long there is traffic: at least 5 s. Where that is not enough to have something of each policy granted,
	// as on a machine that is busy with something else, there is traffic for up to 3 min more.
	Duration time.Duration
	// Rate is how many requests are made in a second.
	Rate float64
	// Seed chooses the requests and the faults.
	Seed uint64
	// Faults are what is done to the servers, none if it is empty.
	Faults []Fault
	// Directory is where the servers keep what they write. It must exist.
	Directory string
	// Progress is called with how the run goes, every Every.
	Progress func(Progress)
	Every    time.Duration
	// Forge has an answer noted wrongly, for a test: "minted" or "lost".
	Forge string
}

// Progress is how a run goes.
type Progress struct {
	At, Of           time.Duration
	Requests         int64
	Minted           float64
	Breaches, Faults int
	LastFault        string
	Memory           []string
}

// errMisused is wrapped by errors about options.
var errMisused = errors.New("weir: misused")

// run is one run.
type run struct {
	o       Options
	all     []*policy
	clocks  *clocks
	history *history
	fleet   *fleet
	traffic *traffic
	storm   *storm
	meter   meter
}

// Run runs a soak, and returns its report. An error says that it could not be done, or that a server did not do what it must.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.Duration < 5*time.Second {
		return nil, fmt.Errorf("%w: the duration %v must be at least 5s", errMisused, o.Duration)
	}
	r := &run{o: o, all: policies(), clocks: newClocks()}
	r.history = newHistory(r.clocks)
	hold := min(max(o.Duration/8, 4*time.Second), 10*time.Second)
	var err error
	if r.fleet, err = newFleet(ctx, o.Program, o.Directory, r.all, hold); err != nil {
		return nil, err
	}
	defer r.fleet.stop()
	if err = r.fleet.start(ctx); err != nil {
		return nil, errors.Join(err, r.keepLogs())
	}
	r.traffic = newTraffic(r.all, r.fleet.nodes, r.history, hold)
	r.storm = &storm{
		fleet: r.fleet, traffic: r.traffic, random: random(o.Seed, 2), did: make(map[string]int),
		pace: min(max(o.Duration/60, 300*time.Millisecond), 6*time.Second),
	}
	// What comes before the first request does not count.
	r.clocks.began = r.clocks.began.Add(time.Duration(r.clocks.now()))
	r.clocks.offset = r.clocks.ahead()
	r.clocks.lowest, r.clocks.highs = r.clocks.offset, r.clocks.offset
	err = r.flow(ctx)
	if o.Forge != "" {
		r.history.forge(o.Forge)
	}
	report := r.report(err)
	if !report.OK {
		err = errors.Join(err, r.keepLogs())
	}
	return report, err
}

func random(seed, stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, stream)) //nolint:gosec // it makes a run repeatable
}

// flow has the traffic flow and the faults happen, and then everything heal.
func (r *run) flow(ctx context.Context) error {
	timed, stop := context.WithCancel(ctx)
	defer stop()
	var work sync.WaitGroup
	var stormed error
	work.Go(func() { r.time(timed, stop) })
	work.Go(func() { r.traffic.run(timed, r.o.Rate, random(r.o.Seed, 1)) })
	if len(r.o.Faults) > 0 {
		work.Go(func() {
			if stormed = r.storm.run(timed, r.o.Faults, r.o.Duration/2); stormed != nil {
				stop()
			}
		})
	}
	work.Go(func() { r.watch(timed, stop) })
	work.Wait()
	if stormed != nil || ctx.Err() != nil {
		return errors.Join(stormed, context.Cause(ctx))
	}
	if err := r.fleet.serves(ctx); err != nil {
		return err
	}
	return r.allBack(ctx)
}

// overtime is how much longer a run may last in which not everything was tried.
const overtime = 3 * time.Minute

// time ends the run when its time has come.
func (r *run) time(ctx context.Context, stop func()) {
	defer stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if now := time.Duration(r.clocks.now()); now >= r.o.Duration && (now >= r.o.Duration+overtime || r.tried()) {
			return
		}
	}
}

// tried reports whether something was granted of each policy, and what a test wants to be noted wrongly can be.
func (r *run) tried() bool {
	if r.o.Forge != "" && r.history.forgery(r.o.Forge) == nil {
		return false
	}
	sums := r.history.check(false)
	for _, p := range r.all {
		if t := sums[p.name]; t == nil || t.granted == 0 {
			return false
		}
	}
	return true
}

// watch samples, tells how it goes, and ends the run once a bound is broken.
func (r *run) watch(ctx context.Context, stop func()) {
	between := min(max(r.o.Duration/600, 250*time.Millisecond), 3*time.Second)
	tick := time.NewTicker(between)
	defer tick.Stop()
	every := r.o.Every
	if every <= 0 {
		every = time.Minute
	}
	told, checked := time.Duration(0), time.Duration(0)
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		r.clocks.watch()
		r.meter.lookAt(ctx, r.fleet, r.clocks)
		now := time.Duration(r.clocks.now())
		// Checking takes longer the longer the history is.
		if now-checked >= max(every, r.o.Duration/40) {
			r.history.check(false)
			checked = now
			if len(r.history.broke()) > 0 {
				stop()
				return
			}
		}
		if now-told >= every && r.o.Progress != nil {
			told = now
			r.o.Progress(r.progress(now))
		}
	}
}

func (r *run) progress(now time.Duration) Progress {
	p := Progress{At: now, Of: r.o.Duration, Requests: r.traffic.asked.Load(), Breaches: len(r.history.broke())}
	_, all, _ := r.storm.done()
	p.Faults = len(all)
	if len(all) > 0 {
		p.LastFault = all[len(all)-1].Fault
	}
	r.meter.mu.Lock()
	defer r.meter.mu.Unlock()
	latest := make(map[string]sample)
	for _, s := range r.meter.all {
		if x := s.all[len(s.all)-1]; x.At >= latest[s.node].At {
			latest[s.node] = x
		}
	}
	for _, name := range sorted(latest) {
		p.Memory = append(p.Memory, fmt.Sprintf("%s %.0f MB", name, latest[name].Memory/1e6))
	}
	return p
}

// allBack waits until every permit of what is shared is there again: nothing is lost for good.
func (r *run) allBack(ctx context.Context) error {
	for _, p := range r.all {
		l := &p.limits[0]
		if len(p.limits) > 1 || l.rate == 0 && !l.slots || p.use == overridden || p.reloaded {
			continue
		}
		for i, n := range r.fleet.nodes {
			if p.scope != local && i > 0 {
				break
			}
			c := n.use()
			if c == nil {
				return fmt.Errorf("%s is not there", n.setup.name)
			}
			var remaining int64
			err := servers.Until(ctx, p.name+" has all its permits again at "+n.setup.name, func() bool {
				short, cancel := context.WithTimeout(ctx, patience)
				defer cancel()
				var got jsonAnswer
				_, err := c.admin.call(short, "POST", "/v1/check", jsonCheck{Policy: p.name, Key: "hot"}, &got)
				remaining = got.Remaining
				// A leased key is known as far as this node has a block of it.
				return err == nil && (remaining >= l.burst || p.scope == leased && remaining >= l.burst/2)
			})
			if err != nil {
				return fmt.Errorf("%w: %d of %d are there", err, remaining, l.burst)
			}
		}
	}
	return r.quotasRight(ctx)
}

// quotasRight compares what the records of quotas say with what clients were granted.
func (r *run) quotasRight(ctx context.Context) error {
	for _, p := range r.all {
		l := &p.limits[len(p.limits)-1]
		if p.scope != durable || l.name != "quota" {
			continue
		}
		for _, m := range r.history.marks(p.name) {
			if m.Limit != l.name {
				continue
			}
			low, high := between(r.history.events(m))
			low = min(low, l.burst) // a debt is not told
			used, err := r.fleet.nodes[0].quotaUsed(ctx, m.Policy, m.Key)
			if err != nil {
				return err
			}
			if used < low || used > high {
				r.history.wrongRecord(m, l, used, low, high)
			}
		}
	}
	return nil
}

// between is how much of a quota was used, at least and at most.
func between(events []bounds.Event) (low, high int64) {
	for i := range events {
		switch e := &events[i]; e.Kind {
		case bounds.Granted, bounds.Charged:
			low, high = low+e.N, high+e.N
		case bounds.Maybe:
			high += e.N
		case bounds.Returned:
			low, high = low-e.N, high-e.N
		case bounds.MayReturn, bounds.Unheard:
			low -= e.N
		case bounds.Refused, bounds.Lapsed:
		}
	}
	return low, high
}

// wrongRecord keeps a breach of a record: it has fewer than clients were granted, or more.
func (h *history) wrongRecord(m mark, l *limit, used, low, high int64) {
	h.mu.Lock()
	g := h.groups[m]
	h.mu.Unlock()
	what, by := whatMinted, low-used // of the record
	if used > high {
		what, by = whatLost, used-high
	}
	now := time.Duration(h.clocks.now())
	h.broken(&group{mark: m, policy: g.policy, limit: l, events: h.events(m)}, what+" by the record",
		bounds.Breach{Permits: float64(by), From: 0, To: now, Times: 1})
}

// keepLogs writes what the servers have logged beside their data.
func (r *run) keepLogs() error {
	var all error
	write := func(name, text string) {
		all = errors.Join(all, os.WriteFile(filepath.Join(r.o.Directory, name+".log"), []byte(text), 0o600))
	}
	for _, n := range r.fleet.nodes {
		write(n.setup.name, n.server.Log.String())
	}
	write("redis", r.fleet.redis.Log.String())
	return all
}
