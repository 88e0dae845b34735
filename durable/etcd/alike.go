package etcd

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"

	"github.com/weirhq/weir/internal/clock"
)

// compareFor is how long a node that has found a damaged record asks the others whether they have the same.
const compareFor = 5 * time.Second

// spoiled is told of a damaged record. A node that is alone with it leaves, so that one whose disk is healthy takes over. Where a
// majority has the same, it came from elsewhere than a disk: its key is refused, and the node stays.
func (s *Server) spoiled(err error) {
	if !s.comparing.CompareAndSwap(false, true) {
		return
	}
	s.work.begin(func() {
		defer s.comparing.Store(false)
		ctx, cancel := context.WithTimeout(s.ctx, compareFor)
		defer cancel()
		switch alone := s.alone(ctx); {
		case s.ctx.Err() != nil:
		case alone != nil:
			s.failure.fail(s.damaged(fmt.Errorf("%w: %w", err, alone)))
		default:
			s.logger.Error("a record is damaged in the same way at a majority of the nodes, so no disk has done it: "+
				"its key is refused", "error", err)
		}
	})
}

// alone is nil if a majority of the nodes, this one among them, has the same records. Otherwise it says what is known.
func (s *Server) alone(ctx context.Context) error {
	way, err := transport.NewTransport(s.peerTLS, compareFor)
	if err != nil {
		return fmt.Errorf("its records cannot be compared with those of the others: %w", err)
	}
	defer way.CloseIdleConnections()
	client, server := &http.Client{Transport: way}, s.etcd.Server
	var others []*membership.Member
	for _, m := range server.Cluster().Members() {
		if m.ID != server.MemberID() {
			others = append(others, m)
		}
	}
	return compare(ctx, others, func(ctx context.Context, m *membership.Member) likeness {
		return s.like(ctx, client, m)
	})
}

// likeness is what is known of the records of another node.
type likeness uint8

const (
	notKnown likeness = iota // yet
	alike
	different
)

// like compares the records of another node with those of this one.
func (s *Server) like(ctx context.Context, client *http.Client, m *membership.Member) likeness {
	server := s.etcd.Server
	own, _, err := server.KV().HashStorage().HashByRev(0)
	if err != nil {
		return notKnown
	}
	for _, url := range m.PeerURLs {
		r, err := etcdserver.HashByRev(ctx, server.Cluster().ID(), client, url, own.Revision)
		switch {
		case err != nil || r.GetCompactRevision() != own.CompactRevision:
		case r.GetHash() == own.Hash:
			return alike
		default:
			return different
		}
	}
	return notKnown
}

// compare asks all other nodes at the same time, and each of them again until it can tell: one that is behind, that has just
// dropped old revisions, or that cannot be reached for a moment. It returns nil as soon as a majority is alike, and otherwise
// what is known when all have told or ctx ends.
func compare[M any](ctx context.Context, others []M, ask func(context.Context, M) likeness) error {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	told := make(chan likeness, len(others))
	for _, m := range others {
		asking.Go(func() {
			is := ask(ctx, m)
			for is == notKnown && clock.Sleep(ctx, compareFor/100) {
				is = ask(ctx, m)
			}
			told <- is
		})
	}
	nodes := len(others) + 1
	var count [different + 1]int
	for range others {
		count[<-told]++
		if 1+count[alike] > nodes/2 {
			return nil
		}
	}
	return fmt.Errorf("of %d nodes %d have the same records as this one, and %d others", nodes, count[alike], count[different])
}
