package durable

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

// Memory is a cluster in the memory of this process: for tests, and for a program without a cluster whose limits need not
// survive. Its records are lost with the process. A [File] keeps them. The zero Memory is not usable: call [NewMemory].
type Memory struct {
	election

	options  MemoryOptions
	records  map[string]memoryRecord // guarded by the election, as all of these
	revision int64
	writes   int64
}

type memoryRecord struct {
	value    []byte
	revision int64
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
	return &Memory{election: election{ttl: o.TTL}, options: o, records: make(map[string]memoryRecord)}, nil
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
	return &MemoryEngine{localEngine: localEngine{election: &m.election, ctx: ctx, end: end}, cluster: m}
}

// MemoryEngine is an [Engine] of a node of a [Memory].
type MemoryEngine struct {
	localEngine

	cluster *Memory
}

var _ Engine = (*MemoryEngine)(nil)

// Cut cuts the node off from its cluster, or connects it again. While it is cut off, its calls wait until their context ends, and
// it looks dead to the others.
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

// Campaign implements [Engine].
func (e *MemoryEngine) Campaign(ctx context.Context, address string) (Term, error) { //nolint:ireturn // there are several
	t, err := e.campaign(ctx, address)
	if err != nil {
		return nil, err
	}
	return &memoryTerm{t, e.cluster}, nil
}

// memoryTerm implements [Term].
type memoryTerm struct {
	*localTerm

	cluster *Memory
}

// reach waits as long as a call takes.
func (t *memoryTerm) reach(ctx context.Context) error {
	cut, bad := t.engine.state()
	switch {
	case cut:
		<-ctx.Done()
		return fmt.Errorf("weir: the cluster cannot be reached: %w", ctx.Err())
	case bad != nil:
		return bad
	case t.cluster.options.Latency > 0:
		select {
		case <-time.After(t.cluster.options.Latency):
		case <-ctx.Done():
			return fmt.Errorf("weir: the cluster did not reply: %w", ctx.Err())
		}
	}
	return nil
}

func (t *memoryTerm) Load(ctx context.Context, name string) (value []byte, revision int64, err error) {
	if err := t.reach(ctx); err != nil {
		return nil, 0, err
	}
	m := t.cluster
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.records[name]
	return slices.Clone(r.value), r.revision, nil
}

func (t *memoryTerm) List(ctx context.Context, prefix string, most int) ([]Named, error) {
	if err := t.reach(ctx); err != nil {
		return nil, err
	}
	m := t.cluster
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
	m := t.cluster
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
	m := t.cluster
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.owner != t.localTerm {
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
