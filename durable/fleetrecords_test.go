//nolint:contextcheck // what was sent is carried out, whether its caller waits or not
package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/store"
)

// registry is the model of the servers that elect the owner of a simulated fleet and keep its records: a file on a disk that fails, loses
// what was not synced when the power is cut, and has bits that flip. What was answered must be there afterwards.
type registry struct {
	sim  *simulation
	disk *durable.TestDisk

	mu      sync.Mutex
	file    *durable.File // nil while there is no power
	changed chan struct{} // closed when that changes
	terms   int64
	// strangers is when terms began, after the first, of nodes that had never heard of the time of the limits.
	strangers []time.Duration
}

const registryFile = "limits"

// newRegistry starts the servers, and what happens to their disk.
func newRegistry(s *simulation) *registry {
	g := &registry{sim: s, disk: durable.NewTestDisk(s.chance("disk")), changed: make(chan struct{})}
	g.power(must(durable.OpenFileOn(g.disk, registryFile)))
	s.work.Go(g.suffer)
	return g
}

// power notes that the servers run, or do not.
func (g *registry) power(f *durable.File) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.file = f
	close(g.changed)
	g.changed = make(chan struct{})
}

// now is the file, nil while there is no power, and what is closed when that changes.
func (g *registry) now() (f *durable.File, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.file, g.changed
}

// suffer has the disk fail now and then, and cuts the power, until the traffic ends.
func (g *registry) suffer() {
	r := g.sim.chance("power")
	for lasts(g.sim.ctx, time.Duration(r.Int64N(int64(fleetTime/2)))) {
		switch r.IntN(3) {
		case 0: // the disk fails for a while
			g.disk.Fail([]int{5, 30, 100}[r.IntN(3)], false)
			lasts(g.sim.ctx, time.Duration(r.Int64N(int64(5*time.Second))))
			g.disk.Fail(0, false)
		default:
			if r.IntN(2) == 0 { // in the middle of something
				g.disk.Fail(30, false)
				lasts(g.sim.ctx, time.Duration(r.Int64N(int64(time.Second))))
			}
			f, _ := g.now()
			g.disk.Fail(0, true)
			g.power(nil)
			_ = f.Close()
			g.disk.Crash()
			lasts(g.sim.ctx, time.Duration(r.Int64N(int64(3*time.Second))))
			g.power(g.restart(r.IntN(3) == 0, r.Uint64()))
		}
	}
}

// restart opens the file as the disk has it. A bit that has flipped is noticed.
func (g *registry) restart(flips bool, bit uint64) *durable.File {
	f, err := durable.OpenFileOn(g.disk, registryFile)
	if err != nil {
		g.sim.failf("the file of records cannot be opened after the power was cut: %v", err)
		g.disk = durable.NewTestDisk(g.sim.chance("another disk"))
		return must(durable.OpenFileOn(g.disk, registryFile))
	}
	if !flips {
		return f
	}
	_ = f.Close()
	g.disk.Flip(registryFile, bit)
	if damaged, err := durable.OpenFileOn(g.disk, registryFile); !errors.Is(err, durable.ErrDamaged) {
		g.sim.failf("a bit of the file of records has flipped, and it was opened: %v", err)
		if err == nil {
			return damaged
		}
	}
	g.disk.Flip(registryFile, bit) // it is restored
	return must(durable.OpenFileOn(g.disk, registryFile))
}

// farEngine is the servers as one node reaches them, over a link.
type farEngine struct {
	registry *registry
	link     string
	ctx      context.Context //nolint:containedctx // until the node has died
	die      context.CancelFunc
	watches  sync.WaitGroup
	knows    atomic.Bool // the node has heard of the time of the limits

	mu     sync.Mutex
	file   *durable.File // of which there is an engine
	engine *durable.FileEngine
}

var _ durable.Engine = (*farEngine)(nil)

func (g *registry) engine(machine string) *farEngine {
	e := &farEngine{registry: g, link: machine + ">records"}
	e.ctx, e.die = context.WithCancel(context.Background())
	return e
}

var errNoPower = fmt.Errorf("%w: the servers have no power", store.ErrUnavailable)

// near is the engine at the servers, and what is closed when there is another one.
func (e *farEngine) near() (*durable.FileEngine, <-chan struct{}, error) {
	f, changed := e.registry.now()
	if f == nil || e.ctx.Err() != nil {
		return nil, changed, errNoPower
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.file != f {
		e.file, e.engine = f, f.Engine()
		e.hear()
	}
	return e.engine, changed, nil
}

// hear cuts the engine off from signs of life while the link is cut, for good if the node has died.
func (e *farEngine) hear() {
	n := e.registry.sim.net
	e.engine.Cut(e.ctx.Err() != nil || n.cut(e.link, n.now()))
}

// sever has the servers not hear the node while the link is cut, until it dies.
func (e *farEngine) sever() {
	n := e.registry.sim.net
	for _, edge := range n.edges(e.link) {
		if !lasts(e.ctx, edge-n.now()) {
			break
		}
		e.mu.Lock()
		if e.engine != nil {
			e.hear()
		}
		e.mu.Unlock()
	}
	<-e.ctx.Done()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.engine != nil {
		e.hear()
	}
}

// Campaign implements [durable.Engine].
func (e *farEngine) Campaign(ctx context.Context, address string) (durable.Term, error) {
	type nothing struct{}
	near, err := call(ctx, e.registry.sim.net, e.link, "campaign", false, func() (*durable.FileEngine, error) {
		near, _, err := e.near()
		return near, err
	})
	if err != nil {
		return nil, err
	}
	term, err := near.Campaign(ctx, address)
	if err != nil {
		return nil, err
	}
	// An owner that does not hear that it was elected lets its term pass.
	if _, err := call(ctx, e.registry.sim.net, e.link, "elected", false, func() (nothing, error) { return nothing{}, nil }); err != nil {
		_ = term.Resign(context.Background())
		return nil, err
	}
	e.registry.mu.Lock()
	if !e.knows.Swap(true) && e.registry.terms > 0 {
		e.registry.strangers = append(e.registry.strangers, e.registry.sim.net.now())
	}
	e.registry.terms++
	e.registry.mu.Unlock()
	return &farTerm{term, e}, nil
}

// Watch implements [durable.Engine].
func (e *farEngine) Watch(ctx context.Context) (<-chan durable.Ownership, error) {
	out := make(chan durable.Ownership, 1)
	e.watches.Go(func() {
		defer close(out)
		for ctx.Err() == nil && e.ctx.Err() == nil {
			near, changed, err := e.near()
			if err == nil {
				e.watch(ctx, near, changed, out)
				continue
			}
			select {
			case <-changed:
			case <-ctx.Done():
			case <-e.ctx.Done():
			}
		}
	})
	return out, nil
}

// watch passes on what the servers tell, until there are others.
func (e *farEngine) watch(ctx context.Context, near *durable.FileEngine, changed <-chan struct{}, out chan durable.Ownership) {
	n := e.registry.sim.net
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	in, err := near.Watch(ctx)
	if err != nil {
		return
	}
	for {
		select {
		case o, ok := <-in:
			if !ok {
				in = nil // it has ended with the servers
				continue
			}
			time.Sleep(1) // until this instant is over
			select {
			case later, ok := <-in:
				if ok {
					o = later
				}
			default:
			}
			f := n.fate(e.link, fmt.Sprint("owner ", o.Epoch, " ", o.Address))
			lasts(ctx, f.there)
			for n.cut(e.link, n.now()) {
				if !lasts(ctx, 100*time.Millisecond) {
					return
				}
			}
			select {
			case <-out: // it is overtaken
			default:
			}
			out <- o
		case <-changed:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Close implements [durable.Engine].
func (e *farEngine) Close() error {
	e.die()
	e.mu.Lock()
	if e.engine != nil {
		_ = e.engine.Close()
	}
	e.mu.Unlock()
	e.watches.Wait()
	return nil
}

// farTerm is a term whose records are read and written over a link. Writes that were lost, or whose answer was, are not told from each
// other; some come late, or once more.
type farTerm struct {
	durable.Term

	engine *farEngine
}

// asked sends a call of the term, unless the node has died.
func asked[T any](ctx context.Context, t *farTerm, what string, f func() (T, error)) (T, error) {
	var none T
	if t.engine.ctx.Err() != nil {
		return none, store.ErrUnavailable
	}
	return call(ctx, t.engine.registry.sim.net, t.engine.link, what, true, f)
}

// Load implements [durable.Term].
func (t *farTerm) Load(ctx context.Context, name string) ([]byte, int64, error) {
	type record struct {
		value    []byte
		revision int64
	}
	got, err := asked(ctx, t, "load "+name, func() (r record, err error) {
		r.value, r.revision, err = t.Term.Load(context.Background(), name)
		return r, err
	})
	return got.value, got.revision, err
}

// List implements [durable.Term].
func (t *farTerm) List(ctx context.Context, prefix string, most int) ([]durable.Named, error) {
	return asked(ctx, t, "list "+prefix, func() ([]durable.Named, error) { return t.Term.List(context.Background(), prefix, most) })
}

// Page implements [durable.Term].
func (t *farTerm) Page(ctx context.Context, prefix, after string, most int) ([]durable.Named, error) {
	return asked(ctx, t, fmt.Sprint("page ", prefix, " ", after), func() ([]durable.Named, error) {
		return t.Term.Page(context.Background(), prefix, after, most)
	})
}

// Store implements [durable.Term].
func (t *farTerm) Store(ctx context.Context, writes []durable.Write) (int64, error) {
	names := make([]string, 0, len(writes))
	copies := make([]durable.Write, 0, len(writes))
	for _, w := range writes {
		if w.Value != nil {
			w.Value = append([]byte{}, w.Value...)
		}
		names, copies = append(names, fmt.Sprint(w.Name, " of ", w.Revision)), append(copies, w)
	}
	slices.Sort(names)
	return asked(ctx, t, fmt.Sprint("store ", t.Epoch(), " ", names), func() (int64, error) {
		return t.Term.Store(context.Background(), copies)
	})
}

// Resign implements [durable.Term].
func (t *farTerm) Resign(ctx context.Context) error {
	_, err := asked(ctx, t, "resign", func() (struct{}, error) { return struct{}{}, t.Term.Resign(context.Background()) })
	return err
}
