package durable

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// election elects the owner among the engines of one process, in the order in which they campaign.
type election struct {
	ttl time.Duration
	// begin notes the epoch of a term before the term begins. Default: nil, it need not be noted.
	begin func(epoch int64) error

	mu       sync.Mutex
	epoch    int64
	owner    *localTerm
	electing bool // begin has not returned
	waiting  []*candidate
	watchers []chan Ownership
}

// localEngine is the part of an engine that campaigns.
type localEngine struct {
	election *election
	ctx      context.Context // until Close
	end      context.CancelFunc

	mu  sync.Mutex
	cut bool
	bad error
}

type candidate struct {
	address string
	engine  *localEngine
	elected chan elected
	gone    bool // it does not wait any more
}

// elected is what became of a campaign.
type elected struct {
	term *localTerm
	err  error
}

func (e *localEngine) state() (cut bool, bad error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cut, e.bad
}

// campaign is [Engine.Campaign].
func (e *localEngine) campaign(ctx context.Context, address string) (*localTerm, error) {
	if e.ctx.Err() != nil {
		return nil, ErrEngineClosed
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("weir: not elected: %w", ctx.Err())
	}
	c := &candidate{address: address, engine: e, elected: make(chan elected, 1)}
	all := e.election
	all.mu.Lock()
	all.waiting = append(all.waiting, c)
	all.elect()
	all.mu.Unlock()
	var err error
	select {
	case r := <-c.elected:
		return r.term, r.err
	case <-ctx.Done():
		err = fmt.Errorf("weir: not elected: %w", ctx.Err())
	case <-e.ctx.Done():
		err = ErrEngineClosed
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	c.gone = true
	if at := slices.Index(all.waiting, c); at >= 0 {
		all.waiting = slices.Delete(all.waiting, at, at+1)
		return nil, err
	}
	select {
	case r := <-c.elected: // at the same moment
		if r.term != nil {
			r.term.close()
		}
	default: // its term is being noted, and does not begin
	}
	return nil, err
}

// elect makes the first candidate the owner, if there is none.
func (e *election) elect() {
	if e.owner != nil || e.electing || len(e.waiting) == 0 {
		return
	}
	c := e.waiting[0]
	e.waiting = e.waiting[1:]
	e.epoch++
	t := &localTerm{engine: c.engine, epoch: e.epoch, address: c.address, done: make(chan struct{})}
	if e.begin == nil {
		e.install(c, t, nil)
		return
	}
	e.electing = true
	go func() {
		err := e.begin(t.epoch)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.electing = false
		e.install(c, t, err)
	}()
}

// install begins the term of a candidate that was elected, unless the term could not be noted.
func (e *election) install(c *candidate, t *localTerm, err error) {
	switch {
	case err != nil:
		c.elected <- elected{err: err}
		e.elect()
	case c.gone:
		e.elect()
	default:
		t.expires = time.Now().Add(e.ttl)
		t.timer = time.AfterFunc(e.ttl/3, t.beat)
		e.owner = t
		e.tell()
		c.elected <- elected{term: t}
	}
}

// tell tells all watchers which node is the owner.
func (e *election) tell() {
	for _, w := range e.watchers {
		select {
		case <-w:
		default:
		}
		w <- e.ownership()
	}
}

func (e *election) ownership() Ownership {
	if e.owner == nil {
		return Ownership{Epoch: e.epoch}
	}
	return Ownership{Address: e.owner.address, Epoch: e.owner.epoch}
}

// Watch implements [Engine].
func (e *localEngine) Watch(ctx context.Context) (<-chan Ownership, error) {
	if e.ctx.Err() != nil {
		return nil, ErrEngineClosed
	}
	all := e.election
	w := make(chan Ownership, 1)
	all.mu.Lock()
	all.watchers = append(all.watchers, w)
	w <- all.ownership()
	all.mu.Unlock()
	stop := func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		if at := slices.Index(all.watchers, w); at >= 0 {
			all.watchers = slices.Delete(all.watchers, at, at+1)
			close(w)
		}
	}
	context.AfterFunc(ctx, stop)
	context.AfterFunc(e.ctx, stop) //nolint:contextcheck // it is that of the engine
	return w, nil
}

// Close implements [Engine].
func (e *localEngine) Close() error {
	e.end()
	return nil
}

// localTerm is the part of a [Term] that lasts.
type localTerm struct {
	engine  *localEngine
	epoch   int64
	address string
	done    chan struct{}
	timer   *time.Timer
	expires time.Time // guarded by the election
	ended   bool
}

// beat is a sign of life, or the end of the term if there has been none for too long.
func (t *localTerm) beat() {
	cut, _ := t.engine.state()
	e := t.engine.election
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.ended {
		return
	}
	now := time.Now()
	if !cut && t.engine.ctx.Err() == nil {
		t.expires = now.Add(e.ttl)
	}
	if !now.Before(t.expires) {
		t.close()
		return
	}
	t.timer.Reset(min(e.ttl/3, t.expires.Sub(now)))
}

// close ends the term. The election must be locked.
func (t *localTerm) close() {
	if t.ended {
		return
	}
	t.ended = true
	t.timer.Stop()
	close(t.done)
	e := t.engine.election
	if e.owner == t {
		e.owner = nil
		e.tell()
		e.elect()
	}
}

// Epoch implements [Term].
func (t *localTerm) Epoch() int64 { return t.epoch }

// Expires implements [Term].
func (t *localTerm) Expires() time.Time {
	t.engine.election.mu.Lock()
	defer t.engine.election.mu.Unlock()
	if t.ended {
		return time.Time{}
	}
	return t.expires
}

// Done implements [Term].
func (t *localTerm) Done() <-chan struct{} { return t.done }

// Resign implements [Term].
func (t *localTerm) Resign(context.Context) error {
	t.engine.election.mu.Lock()
	defer t.engine.election.mu.Unlock()
	t.close()
	return nil
}
