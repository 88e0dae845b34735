package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/etcdserver"
)

// compareFor is how long a node that has found a damaged record asks the others whether they have the same.
const compareFor = 5 * time.Second

// spoiled is told of a damaged record. A node that is alone with it leaves, so that one whose disk is healthy takes over. Where a
// majority has the same, it came from elsewhere than a disk: no permits of its key are granted, and the node stays.
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
				"no permits of its key are granted", "error", err)
		}
	})
}

// alone is nil if a majority of the nodes, this one among them, has the same records. Otherwise it says what is known.
func (s *Server) alone(ctx context.Context) error {
	server := s.etcd.Server
	own, _, err := server.KV().HashStorage().HashByRev(0)
	if err != nil {
		return fmt.Errorf("its records cannot be compared with those of the others: %w", err)
	}
	way, err := transport.NewTransport(s.peerTLS, compareFor)
	if err != nil {
		return fmt.Errorf("its records cannot be compared with those of the others: %w", err)
	}
	defer way.CloseIdleConnections()
	client := &http.Client{Transport: way}
	members := server.Cluster().Members()
	same, others := 1, 0
	for _, m := range members {
		if m.ID == server.MemberID() {
			continue
		}
		for _, url := range m.PeerURLs {
			r, err := etcdserver.HashByRev(ctx, server.Cluster().ID(), client, url, own.Revision)
			for errors.Is(err, rpctypes.ErrFutureRev) && wait(ctx, compareFor/100) { // it will have it in a moment
				r, err = etcdserver.HashByRev(ctx, server.Cluster().ID(), client, url, own.Revision)
			}
			if err != nil {
				continue
			}
			if r.GetCompactRevision() != own.CompactRevision {
				break // it cannot be compared
			}
			if r.GetHash() == own.Hash {
				same++
			} else {
				others++
			}
			break
		}
	}
	if len(members) > 1 && same > len(members)/2 {
		return nil
	}
	return fmt.Errorf("of %d nodes %d have the same records as this one, and %d others", len(members), same-1, others)
}

// wait reports whether a time has passed before ctx has ended.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
