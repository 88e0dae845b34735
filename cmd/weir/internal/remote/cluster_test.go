package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/etcd"
	"github.com/weirhq/weir/store"
)

// alone is a node over a cluster in memory.
type alone struct {
	node   *durable.Node
	failed chan struct{}
}

func (a alone) Node() *durable.Node     { return a.node }
func (a alone) Close() error            { return a.node.Close() }
func (a alone) Failed() <-chan struct{} { return a.failed }
func (a alone) Err() error              { return errors.New("the disk is full") }

var charges = []store.Charge{{Policy: "p", Limit: weir.TokenBucket(weir.PerHour(1), 2), N: 1, Durable: true}}

// TestJoinsLate: a cluster that cannot be joined at first does not keep the program from starting, answers that it is unavailable, and
// is used as soon as it is there.
func TestJoinsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, err := durable.NewMemory(durable.MemoryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		attempts := 0
		l := newCluster("here", "", slog.New(slog.NewTextHandler(&log, nil)), func(context.Context) (Joined, error) {
			if attempts++; attempts < 8 {
				return nil, errors.New("nobody is there")
			}
			//nolint:contextcheck // a node has a context of its own
			node, err := durable.NewNode(durable.NodeOptions{Engine: memory.Engine(), Address: "a"})
			return alone{node: node}, err
		})
		if err := l.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		decisions := make([]weir.Decision, 1)
		if err := store.Take(t.Context(), l, charges, decisions); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "nobody is there") {
			t.Errorf("%v", err)
		}
		if s := l.Status(); s.Joined || s.Error != "nobody is there" || s.Cluster != "here" {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := store.Take(t.Context(), l, charges, decisions); err != nil || !decisions[0].Allowed {
			t.Errorf("%v, %+v", err, decisions[0])
		}
		if s := l.Status(); !s.Joined || !s.Owns || attempts != 8 {
			t.Errorf("%+v after %d attempts", s, attempts)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if text := log.String(); strings.Count(text, "cannot be joined") != 1 || strings.Count(text, "the cluster is joined") != 1 {
			t.Error(text)
		}
	})
}

// TestWhyIsKnownOnceTried: when the outcome of the first attempt is told, the status says why it has failed.
func TestWhyIsKnownOnceTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newCluster("here", "", slog.New(slog.DiscardHandler), func(context.Context) (Joined, error) {
			return nil, errors.New("nobody is there")
		})
		stops := &stopsOnceTold{Context: l.ctx, first: l.first, on: make(chan struct{})}
		l.ctx = stops
		go l.keepTrying()
		synctest.Wait()
		if s := l.Status(); len(l.first) != 1 || s.Error != "nobody is there" {
			t.Errorf("%d outcomes are told, and %+v", len(l.first), s)
		}
		close(stops.on)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// stopsOnceTold stops the goroutine that asks it once the outcome of the first attempt is told, until that may go on.
type stopsOnceTold struct {
	context.Context //nolint:containedctx // it is one

	first chan error
	on    chan struct{}
}

func (s *stopsOnceTold) Err() error {
	if len(s.first) > 0 {
		<-s.on
	}
	return s.Context.Err()
}

// TestJoinsSlowly: the program starts although an attempt to join takes long, and ends although it never comes back.
func TestJoinsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, over := time.Now(), make(chan struct{})
		l := newCluster("here", "", slog.New(slog.DiscardHandler), func(context.Context) (Joined, error) {
			<-over
			return nil, errors.New("too late")
		})
		if err := l.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := l.Status(); time.Since(begin) != patience || s.Joined || !strings.Contains(s.Error, "a majority of its nodes") {
			t.Errorf("%v, %+v", time.Since(begin), s)
		}
		begin = time.Now()
		if err := l.Close(); err != nil || time.Since(begin) != goodbye {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		close(over)
	})
}

// TestJoinsAgain: a node that cannot go on, as its disk is full, is not ready, joins again by itself, and is ready then; one whose disk
// is damaged is left to an operator, while the program goes on.
func TestJoinsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, err := durable.NewMemory(durable.MemoryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		full := make(chan struct{})
		attempts := 0
		l := newCluster("here", "", slog.New(slog.DiscardHandler), func(context.Context) (Joined, error) {
			switch attempts++; attempts {
			case 2, 3:
				return nil, errors.New("no space left on device")
			case 5:
				return nil, fmt.Errorf("the disk: %w", etcd.ErrRepair)
			}
			//nolint:contextcheck // a node has a context of its own
			node, err := durable.NewNode(durable.NodeOptions{Engine: memory.Engine(), Address: "a"})
			return alone{node, full}, err
		})
		if err := l.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.Ready(); err != nil {
			t.Error(err)
		}
		before := full
		full = make(chan struct{})
		close(before)
		synctest.Wait()
		if err := l.Ready(); err == nil || !strings.Contains(err.Error(), "full") {
			t.Error(err)
		}
		time.Sleep(50 * time.Millisecond) // less than the pause
		synctest.Wait()
		if err := store.Take(t.Context(), l, charges, make([]weir.Decision, 1)); !errors.Is(err, store.ErrUnavailable) {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := l.Ready(); err != nil || attempts != 4 {
			t.Errorf("%v after %d attempts", err, attempts)
		}
		if err := store.Take(t.Context(), l, charges, make([]weir.Decision, 1)); err != nil {
			t.Error(err)
		}
		close(full)
		time.Sleep(time.Minute)
		<-l.ended
		if err := l.Ready(); !errors.Is(err, etcd.ErrRepair) || attempts != 5 {
			t.Errorf("%v after %d attempts", err, attempts)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestJoinHopeless: what will not go away by itself is an error at once, and later ends the attempts.
func TestJoinHopeless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrong := &weir.OptionError{Option: "TTL", Value: "1ms", Accepted: "from 1s to 1h"}
		attempts := 0
		join := func(context.Context) (Joined, error) {
			if attempts++; attempts == 2 {
				return nil, errors.New("not now")
			}
			return nil, wrong
		}
		if err := newCluster("here", "", slog.New(slog.DiscardHandler), join).open(t.Context()); !errors.Is(err, error(wrong)) {
			t.Errorf("%v", err)
		}
		l := newCluster("here", "", slog.New(slog.DiscardHandler), join)
		if err := l.open(t.Context()); err != nil {
			t.Errorf("%v", err)
		}
		time.Sleep(time.Minute)
		<-l.ended
		if s := l.Status(); attempts != 3 || s.Joined || !strings.Contains(s.Error, "TTL") {
			t.Errorf("%d attempts, %+v", attempts, s)
		}
	})
}

// TestReadyWithoutOwner: a node that reaches no owner stays ready for as long as another one usually takes to become the owner, is not
// ready after that, says where the last one was, and is ready again once there is one.
func TestReadyWithoutOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, err := durable.NewMemory(durable.MemoryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		owners := make(chan durable.Ownership, 1)
		owners <- durable.Ownership{Address: "b:1", Epoch: 1}
		var refused atomic.Bool
		refused.Store(true)
		node, err := durable.NewNode(durable.NodeOptions{
			Engine: watched{memory.Engine(), owners}, Follower: true,
			Dial: func(context.Context, string) (durable.Peer, error) {
				if refused.Load() {
					return nil, errors.New("connection refused")
				}
				return &timed{done: make(chan struct{})}, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		l := newCluster("here", "", slog.New(slog.DiscardHandler), func(context.Context) (Joined, error) { return alone{node: node}, nil })
		l.gap += 3 * time.Second // the TTL
		if err := l.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(8 * time.Second)
		synctest.Wait()
		if err := l.Ready(); err != nil {
			t.Errorf("too early: %v", err)
		}
		time.Sleep(time.Millisecond)
		const want = "no owner can be reached, the last one was b:1"
		if err := l.Ready(); !errors.Is(err, store.ErrUnavailable) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v", err)
		}
		if s := l.Status(); !s.Joined || s.Owner != "b:1" || s.OwnerUnreached <= 8*time.Second {
			t.Errorf("%+v", s)
		}
		refused.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		if err := l.Ready(); err != nil || l.Status().OwnerUnreached != 0 {
			t.Errorf("%v, %+v", err, l.Status())
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// watched is an engine whose owners a test names.
type watched struct {
	durable.Engine

	owners chan durable.Ownership
}

func (w watched) Watch(context.Context) (<-chan durable.Ownership, error) { return w.owners, nil }

// timed is a peer that tells the time.
type timed struct {
	durable.Peer

	once sync.Once
	done chan struct{}
}

func (*timed) Time() (unix int64, heard time.Time) { return time.Now().UnixNano(), time.Now() }
func (p *timed) Done() <-chan struct{}             { return p.done }
func (p *timed) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}
