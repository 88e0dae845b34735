package durable

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir"
)

// MemoryOptions configure a [Memory].
type MemoryOptions struct {
	// TTL is how long a term outlasts its last sign of life: from 10 ms to 1 h. Default: 1 s.
	TTL time.Duration
	// Latency is how long a write or a read takes. Default: 0.
	Latency time.Duration
}

// Memory is a cluster in the memory of this process: for tests, and for a program that has no other to agree with and need not
// survive. Its records are lost with the process.
type Memory struct {
	options MemoryOptions

	mu       sync.Mutex
	records  map[string]memoryRecord
	revision int64
	epoch    int64
	owner    *memoryTerm
	waiting  []*candidate
	watchers []chan Ownership
	writes   int64
}

type memoryRecord struct {
	value    []byte
	revision int64
}

type candidate struct {
	address string
	engine  *MemoryEngine
	elected chan *memoryTerm
}

// NewMemory returns a cluster without nodes, or an *[weir.OptionError].
func NewMemory(o MemoryOptions) (*Memory, error) {
	if o.TTL == 0 {
		o.TTL = time.Second
	}
	if o.TTL < 10*time.Millisecond || o.TTL > time.Hour {
		return nil, &weir.OptionError{Option: "MemoryOptions.TTL", Value: o.TTL.String(), Accepted: "from 10ms to 1h"}
	}
	if o.Latency < 0 || o.Latency > time.Minute {
		return nil, &weir.OptionError{Option: "MemoryOptions.Latency", Value: o.Latency.String(), Accepted: "from 0 to 1m"}
	}
	return &Memory{options: o, records: make(map[string]memoryRecord)}, nil
}

// Writes is how many transactions have been written. Those that did nothing but delete records do not count.
func (m *Memory) Writes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writes
}

// Records is how many records there are.
func (m *Memory) Records() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.records)
}

// Engine is the cluster as one more node sees it.
func (m *Memory) Engine() *MemoryEngine {
	ctx, end := context.WithCancel(context.Background())
	return &MemoryEngine{cluster: m, ctx: ctx, end: end}
}

// MemoryEngine is an [Engine] of a node of a [Memory].
type MemoryEngine struct {
	cluster *Memory
	ctx     context.Context //nolint:containedctx // until Close
	end     context.CancelFunc

	mu  sync.Mutex
	cut bool
	bad error
}

var _ Engine = (*MemoryEngine)(nil)

// Cut cuts the node off from its cluster, or connects it again: its calls wait until their context ends, and it shows no sign of
// life.
func (e *MemoryEngine) Cut(cut bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cut = cut
}

// Fail makes writes and reads of the node fail, until it is called with nil.
func (e *MemoryEngine) Fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bad = err
}

func (e *MemoryEngine) state() (cut bool, bad error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cut, e.bad
}

// Campaign implements [Engine].
func (e *MemoryEngine) Campaign(ctx context.Context, address string) (Term, error) { //nolint:ireturn // there are several
	if e.ctx.Err() != nil {
		return nil, ErrEngineClosed
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("weir: not elected: %w", ctx.Err())
	}
	c := &candidate{address, e, make(chan *memoryTerm, 1)}
	e.cluster.mu.Lock()
	e.cluster.waiting = append(e.cluster.waiting, c)
	e.cluster.elect()
	e.cluster.mu.Unlock()
	var err error
	select {
	case t := <-c.elected:
		return t, nil
	case <-ctx.Done():
		err = fmt.Errorf("weir: not elected: %w", ctx.Err())
	case <-e.ctx.Done():
		err = ErrEngineClosed
	}
	e.cluster.mu.Lock()
	defer e.cluster.mu.Unlock()
	if at := slices.Index(e.cluster.waiting, c); at >= 0 {
		e.cluster.waiting = slices.Delete(e.cluster.waiting, at, at+1)
		return nil, err
	}
	(<-c.elected).close() // it was elected at the same moment
	return nil, err
}

// elect makes the first of those who wait the owner, if there is none.
func (m *Memory) elect() {
	if m.owner != nil || len(m.waiting) == 0 {
		return
	}
	c := m.waiting[0]
	m.waiting = m.waiting[1:]
	m.epoch++
	t := &memoryTerm{
		engine: c.engine, epoch: m.epoch, address: c.address, done: make(chan struct{}),
		expires: time.Now().Add(m.options.TTL),
	}
	m.owner = t
	t.timer = time.AfterFunc(m.options.TTL/3, t.beat)
	m.tell()
	c.elected <- t
}

// tell tells all watchers who is the owner.
func (m *Memory) tell() {
	for _, w := range m.watchers {
		select {
		case <-w:
		default:
		}
		w <- m.ownership()
	}
}

func (m *Memory) ownership() Ownership {
	if m.owner == nil {
		return Ownership{Epoch: m.epoch}
	}
	return Ownership{Address: m.owner.address, Epoch: m.owner.epoch}
}

// Watch implements [Engine].
func (e *MemoryEngine) Watch(ctx context.Context) (<-chan Ownership, error) {
	if e.ctx.Err() != nil {
		return nil, ErrEngineClosed
	}
	m := e.cluster
	w := make(chan Ownership, 1)
	m.mu.Lock()
	m.watchers = append(m.watchers, w)
	w <- m.ownership()
	m.mu.Unlock()
	stop := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if at := slices.Index(m.watchers, w); at >= 0 {
			m.watchers = slices.Delete(m.watchers, at, at+1)
			close(w)
		}
	}
	context.AfterFunc(ctx, stop)
	context.AfterFunc(e.ctx, stop) //nolint:contextcheck // it is that of the engine
	return w, nil
}

// Close implements [Engine].
func (e *MemoryEngine) Close() error {
	e.end()
	return nil
}

// memoryTerm implements [Term].
type memoryTerm struct {
	engine  *MemoryEngine
	epoch   int64
	address string
	done    chan struct{}
	timer   *time.Timer
	expires time.Time // guarded by the cluster
	ended   bool
}

// beat is a sign of life, or the end of the term if there has been none for too long.
func (t *memoryTerm) beat() {
	cut, _ := t.engine.state()
	m := t.engine.cluster
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.ended {
		return
	}
	now := time.Now()
	if !cut && t.engine.ctx.Err() == nil {
		t.expires = now.Add(m.options.TTL)
	}
	if !now.Before(t.expires) {
		t.close()
		return
	}
	t.timer.Reset(min(m.options.TTL/3, t.expires.Sub(now)))
}

// close ends the term. The cluster must be locked.
func (t *memoryTerm) close() {
	if t.ended {
		return
	}
	t.ended = true
	t.timer.Stop()
	close(t.done)
	m := t.engine.cluster
	if m.owner == t {
		m.owner = nil
		m.tell()
		m.elect()
	}
}

func (t *memoryTerm) over() {
	t.engine.cluster.mu.Lock()
	defer t.engine.cluster.mu.Unlock()
	t.close()
}

func (t *memoryTerm) Epoch() int64 { return t.epoch }

func (t *memoryTerm) Expires() time.Time {
	t.engine.cluster.mu.Lock()
	defer t.engine.cluster.mu.Unlock()
	if t.ended {
		return time.Time{}
	}
	return t.expires
}

func (t *memoryTerm) Done() <-chan struct{} { return t.done }

// reach waits as long as a call takes.
func (t *memoryTerm) reach(ctx context.Context) error {
	cut, bad := t.engine.state()
	switch {
	case cut:
		<-ctx.Done()
		return fmt.Errorf("weir: the cluster cannot be reached: %w", ctx.Err())
	case bad != nil:
		return bad
	case t.engine.cluster.options.Latency > 0:
		select {
		case <-time.After(t.engine.cluster.options.Latency):
		case <-ctx.Done():
			return fmt.Errorf("weir: the cluster has not answered: %w", ctx.Err())
		}
	}
	return nil
}

func (t *memoryTerm) Load(ctx context.Context, name string) (value []byte, revision int64, err error) {
	if err := t.reach(ctx); err != nil {
		return nil, 0, err
	}
	m := t.engine.cluster
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.records[name]
	return slices.Clone(r.value), r.revision, nil
}

func (t *memoryTerm) List(ctx context.Context, prefix string, most int) ([]Named, error) {
	if err := t.reach(ctx); err != nil {
		return nil, err
	}
	m := t.engine.cluster
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Named
	for name, r := range m.records {
		if strings.HasPrefix(name, prefix) {
			all = append(all, Named{name, slices.Clone(r.value), r.revision})
		}
	}
	slices.SortFunc(all, func(a, b Named) int { return strings.Compare(b.Name, a.Name) })
	return all[:max(0, min(len(all), most))], nil
}

func (t *memoryTerm) Page(ctx context.Context, prefix, after string, most int) ([]Named, error) {
	if err := t.reach(ctx); err != nil {
		return nil, err
	}
	m := t.engine.cluster
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name := range m.records {
		if strings.HasPrefix(name, prefix) && name > after {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	names = names[:max(0, min(len(names), most))]
	all := make([]Named, len(names))
	for i, name := range names {
		r := m.records[name]
		all[i] = Named{name, slices.Clone(r.value), r.revision}
	}
	return all, nil
}

func (t *memoryTerm) Store(ctx context.Context, writes []Write) (revision int64, err error) {
	if err := CheckWrites(writes); err != nil {
		return 0, err
	}
	if err := t.reach(ctx); err != nil {
		return 0, err
	}
	m := t.engine.cluster
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.owner != t {
		return 0, ErrDeposed
	}
	for _, w := range writes {
		if m.records[w.Name].revision != w.Revision {
			return 0, ErrConflict
		}
	}
	m.revision++
	puts := int64(0)
	for _, w := range writes {
		if w.Value == nil {
			delete(m.records, w.Name)
			continue
		}
		m.records[w.Name] = memoryRecord{slices.Clone(w.Value), m.revision}
		puts = 1
	}
	m.writes += puts
	return m.revision, nil
}

func (t *memoryTerm) Resign(context.Context) error {
	t.over()
	return nil
}
