package etcd

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
)

// A node that was removed cannot write any more, and not even end its lease, so that the others would wait until that has run
// out. So the one that removes it asks it to hand over before, by this path beside those of etcd.
const (
	leavePath = "/weir/leave"
	// handTime is how long a node may take to hand over.
	handTime = 5 * time.Second
	// awayTime is how long it does not own the limits after that, if it is not removed in the end.
	awayTime = settleTime + 15*time.Second
)

// bid has a node hand over that is about to be removed. One that cannot be reached, or not in time, is removed all the same.
func (s *Server) bid(ctx context.Context, m *Member) {
	if m.ID == uint64(s.etcd.Server.MemberID()) {
		s.yield(ctx)
		return
	}
	way, err := transport.NewTransport(s.peerTLS, reachTime)
	if err != nil {
		return
	}
	way.DisableKeepAlives = true
	client := &http.Client{Transport: way, Timeout: handTime}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL+leavePath+"?id="+strconv.FormatUint(m.ID, 16), http.NoBody)
	if err != nil {
		return
	}
	if response, err := client.Do(r); err == nil {
		_ = response.Body.Close()
	}
}

// yield hands over what this node owns. If it leads etcd as well it still does: a change that is under way while another one
// comes to lead is lost.
func (s *Server) yield(ctx context.Context) {
	if n := s.node.Load(); n != nil {
		short, cancel := context.WithTimeout(ctx, handTime)
		defer cancel()
		_ = n.HandOver(short, awayTime) // otherwise the others wait for its lease
	}
}

// askedToLeave handles what bid asks.
func (s *Server) askedToLeave(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseUint(r.URL.Query().Get("id"), 16, 64)
	switch {
	case s.node.Load() == nil: // until then there is no s.etcd either
		http.Error(w, "this node does not take part yet", http.StatusServiceUnavailable)
	case r.Method != http.MethodPost:
		http.Error(w, "it must be POST", http.StatusMethodNotAllowed)
	case err != nil || id != uint64(s.etcd.Server.MemberID()):
		http.Error(w, "this is another node", http.StatusConflict)
	default:
		s.yield(r.Context())
		w.WriteHeader(http.StatusNoContent)
	}
}

// errRemoved is why a server cannot go on that is no member of its cluster any more.
var errRemoved = errors.New("it was removed from the cluster")

// watchRemoval has a server fail that was removed: etcd ends by itself for no other reason.
func (s *Server) watchRemoval() {
	select {
	case <-s.etcd.Server.StoppingNotify():
		if s.ctx.Err() == nil {
			s.failure.fail(s.removed)
		}
	case <-s.failure.done:
	case <-s.ctx.Done():
	}
}
