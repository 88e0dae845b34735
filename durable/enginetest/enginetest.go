// Package enginetest is the suite that every engine of package durable must pass: in virtual time, or against real servers.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/durable"
)

// Cluster is what is tested. Every test has an election of its own, and leaves no owner behind.
type Cluster struct {
	// Engine returns the cluster as one more process sees it, which the test closes. All engines of a test must share an election
	// and records that no other test uses.
	Engine func(t *testing.T) durable.Engine
	// TTL is how long a term outlasts the last sign of life of its process, at most, with what the engine may add.
	TTL time.Duration
	// Virtual is true if time is virtual, so that what takes too long is wrong. Against real servers, on a machine that may
	// stall, it is only logged.
	Virtual bool
}

// Test is one test.
type Test struct {
	Name string
	Run  func(t *testing.T, c Cluster)
}

// Run runs all tests as subtests, each on a cluster of its own, or on a part of one that no other test uses.
func Run(t *testing.T, start func(t *testing.T) Cluster) {
	t.Helper()
	for _, test := range Tests() {
		t.Run(test.Name, func(t *testing.T) { test.Run(t, start(t)) })
	}
}

// Tests are all tests.
func Tests() []Test {
	return []Test{
		{"OneIsElected", oneIsElected},
		{"EpochsIncreaseInTheOrderOfCampaigns", epochsIncrease},
		{"ResigningHandsOver", resigning},
		{"CampaignsCanBeGivenUp", givenUp},
		{"WatchersAreTold", watchersAreTold},
		{"WatchingEnds", watchingEnds},
		{"ClosingEndsEverything", closing},
		{"NobodyIsElectedBeforeATermExpires", notBefore},
		{"RecordsAreKept", recordsAreKept},
		{"RecordsAreDeleted", recordsAreDeleted},
		{"AllOrNothingIsWritten", allOrNothing},
		{"WhoIsDeposedCannotWrite", deposed},
		{"OneOfSeveralWritersWins", writers},
		{"NamesMayBeAnything", names},
		{"ListsAndPagesAreInOrder", lists},
		{"SizesAreBounded", sizes},
		{"ReadersSeeWhatWasWritten", readers},
		{"AContextThatHasEndedEndsACall", contexts},
	}
}

// patience is how long something may take that must happen: longer than it takes several leaders one after the other, each of
// which lets all leases begin anew.
const patience = 5 * time.Minute

type test struct {
	*testing.T

	c Cluster
}

func (t test) engine() durable.Engine { //nolint:ireturn // there are several
	t.Helper()
	e := t.c.Engine(t.T)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// elected campaigns and resigns at the end of the test, if nothing else does.
func (t test) elected(e durable.Engine, address string) durable.Term { //nolint:ireturn // there are several
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	term, err := e.Campaign(ctx, address)
	for err != nil { // as a node does; a server may elect a leader just now
		t.Logf("%s was not elected: %v", address, err)
		if ctx.Err() != nil {
			t.FailNow()
		}
		term, err = e.Campaign(ctx, address)
	}
	t.Cleanup(func() { t.resign(term) })
	return term
}

func (t test) resign(term durable.Term) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch err := term.Resign(ctx); {
	case err == nil || errors.Is(err, durable.ErrEngineClosed):
	case !t.c.Virtual && (errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "timed out")):
		t.Logf("nobody has answered: %v", err) // as servers do that lose their leader just now
	default:
		t.Error(err)
	}
}

// campaign campaigns without waiting, as a node does: again if a server fails, which may elect a leader just now.
type campaign struct {
	address string
	cancel  context.CancelFunc
	done    chan struct{}
	term    durable.Term
	err     error
	at      time.Time
}

func (t test) campaign(e durable.Engine, address string) *campaign {
	ctx, cancel := context.WithCancel(t.Context())
	c := &campaign{address: address, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.term, c.err = e.Campaign(ctx, address)
		for c.err != nil && ctx.Err() == nil && !errors.Is(c.err, durable.ErrEngineClosed) && !t.c.Virtual {
			t.Logf("%s was not elected: %v", address, c.err)
			c.term, c.err = e.Campaign(ctx, address)
		}
		c.at = time.Now()
	}()
	return c
}

// wins waits until a campaign is won.
func (t test) wins(c *campaign) durable.Term { //nolint:ireturn // there are several
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		c.cancel()
		t.Fatal("nobody was elected")
	}
	if c.err != nil {
		t.Fatal(c.err)
	}
	t.Cleanup(func() { c.cancel(); t.resign(c.term) })
	return c.term
}

// watch tells what a watcher is told, from when it has begun.
func (t test) watch(e durable.Engine) <-chan durable.Ownership {
	t.Helper()
	w, err := e.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// told waits until a watcher is told of an owner.
func (t test) told(w <-chan durable.Ownership, address string) durable.Ownership {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case o, ok := <-w:
			if !ok {
				t.Fatal("the watch has ended")
			}
			if o.Address == address {
				return o
			}
		case <-timer.C:
			t.Fatalf("%q was never told to be the owner", address)
		}
	}
}

// within says what took longer than it should.
func (t test) within(most, took time.Duration, what string) {
	t.Helper()
	switch {
	case took <= most:
	case t.c.Virtual:
		t.Errorf("it took %v %s, want %v at most", took, what, most)
	default:
		t.Logf("it took %v %s", took, what)
	}
}

func oneIsElected(tt *testing.T, c Cluster) {
	t := test{tt, c}
	first := t.elected(t.engine(), "first")
	e := t.engine()
	second := t.campaign(e, "second")
	w := t.watch(e)
	if o := t.told(w, "first"); o.Epoch != first.Epoch() {
		t.Errorf("the epoch is told to be %d, but is %d", o.Epoch, first.Epoch())
	}
	if !time.Now().Before(first.Expires()) {
		t.Error("a term that has begun has expired")
	}
	for range 5 { // for longer than a term lasts without signs of life
		pass(c.TTL / 4)
		select {
		case <-second.done:
			t.Fatalf("there are two owners: %v", second.err)
		case <-first.Done():
			t.Fatal("the term has ended by itself")
		default:
		}
		if !time.Now().Before(first.Expires()) {
			t.Error("a term that goes on has expired")
		}
	}
	second.cancel()
	<-second.done
	if second.err == nil {
		t.Error("a campaign that was given up was won")
	}
}

func epochsIncrease(tt *testing.T, c Cluster) {
	t := test{tt, c}
	term := t.elected(t.engine(), "0")
	w := t.watch(t.engine())
	t.told(w, "0")
	// One after the other, so that there is an order. A server may be slow, and have them in another one.
	var all []*campaign
	won := make(chan *campaign, 3)
	for i := range cap(won) {
		next := t.campaign(t.engine(), fmt.Sprint(1+i))
		go func() {
			<-next.done
			won <- next
		}()
		all = append(all, next)
		pass(200 * time.Millisecond)
	}
	last := term.Epoch()
	t.resign(term)
	for i := range all {
		var next *campaign
		select {
		case next = <-won:
		case <-time.After(patience):
			t.Fatal("nobody was elected")
		}
		if t.c.Virtual && next != all[i] {
			t.Errorf("%s was elected, want %s", next.address, all[i].address)
		}
		term = t.wins(next)
		if term.Epoch() <= last {
			t.Errorf("epoch %d after %d", term.Epoch(), last)
		}
		last = term.Epoch()
		if o := t.told(w, next.address); o.Epoch != last {
			t.Errorf("the epoch is told to be %d, but is %d", o.Epoch, last)
		}
		t.resign(term)
	}
}

func resigning(tt *testing.T, c Cluster) {
	t := test{tt, c}
	first := t.elected(t.engine(), "first")
	second := t.campaign(t.engine(), "second")
	pass(100 * time.Millisecond)
	begin := time.Now()
	t.resign(first)
	t.resign(first) // does no harm
	select {
	case <-first.Done():
	default:
		t.Error("a term that was resigned goes on")
	}
	if time.Now().Before(first.Expires()) {
		t.Error("a term that was resigned has not expired")
	}
	t.wins(second)
	t.within(c.TTL/2, second.at.Sub(begin), "until the next one was elected")
	if _, err := first.Store(t.Context(), []durable.Write{write("a", "b", 0)}); !errors.Is(err, durable.ErrDeposed) {
		t.Errorf("after the term was resigned: %v", err)
	}
}

func givenUp(tt *testing.T, c Cluster) {
	t := test{tt, c}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if term, err := t.engine().Campaign(ctx, "gone"); err == nil {
		t.resign(term)
		t.Error("a context that had ended was elected")
	}
	first := t.elected(t.engine(), "first")
	gone := t.campaign(t.engine(), "gone")
	pass(100 * time.Millisecond)
	next := t.campaign(t.engine(), "next")
	pass(100 * time.Millisecond)
	gone.cancel()
	<-gone.done
	if !errors.Is(gone.err, context.Canceled) {
		t.Errorf("the campaign was given up: %v", gone.err)
	}
	begin := time.Now()
	t.resign(first)
	t.wins(next)
	t.within(c.TTL/2, next.at.Sub(begin), "which is to wait for one that was given up")
}

func watchersAreTold(tt *testing.T, c Cluster) {
	t := test{tt, c}
	e := t.engine()
	w := t.watch(e)
	if o := <-w; o.Address != "" {
		t.Errorf("there is no owner, but %+v", o)
	}
	first := t.elected(e, "first")
	t.told(w, "first")
	late := t.watch(t.engine())
	if o := <-late; o.Address != "first" || o.Epoch != first.Epoch() {
		t.Errorf("a late watcher is told %+v", o)
	}
	t.resign(first)
	t.told(late, "")
	slow := t.watch(t.engine())
	for i := range 5 {
		t.resign(t.elected(e, fmt.Sprint(i)))
	}
	last := t.elected(e, "last")
	t.told(w, "last")
	if o := t.told(slow, "last"); o.Epoch != last.Epoch() {
		t.Errorf("a slow watcher is told %+v", o)
	}
}

func watchingEnds(tt *testing.T, c Cluster) {
	t := test{tt, c}
	e := t.engine()
	ctx, cancel := context.WithCancel(t.Context())
	w, err := e.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	<-w
	cancel()
	for range w {
	}
	w = t.watch(e)
	<-w
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	for range w {
	}
	if _, err := e.Watch(t.Context()); !errors.Is(err, durable.ErrEngineClosed) {
		t.Errorf("a closed engine is watched: %v", err)
	}
}

func closing(tt *testing.T, c Cluster) {
	t := test{tt, c}
	e := c.Engine(tt)
	term := t.elected(e, "first")
	other := c.Engine(tt)
	waiting := t.campaign(other, "waiting")
	pass(100 * time.Millisecond)
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	<-waiting.done
	if !errors.Is(waiting.err, durable.ErrEngineClosed) {
		t.Errorf("a campaign on a closed engine: %v", waiting.err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
	if _, err := e.Campaign(t.Context(), "again"); !errors.Is(err, durable.ErrEngineClosed) {
		t.Errorf("a campaign on a closed engine: %v", err)
	}
	next := t.wins(t.campaign(t.engine(), "next")) // once the term of the one that is gone has expired
	if next.Epoch() <= term.Epoch() {
		t.Errorf("epoch %d after %d", next.Epoch(), term.Epoch())
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-term.Done():
	case <-timer.C:
		t.Error("the term of a closed engine goes on")
	}
}

// pass lets time pass: an engine does not tell when a candidate has taken its place. A suite that goes on too early tests less,
// and does not fail.
func pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}
