package etcd

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/weirhq/weir/durable"
)

const (
	// asideEvery is how often it is looked whether this node both owns the limits and leads etcd.
	asideEvery = 200 * time.Millisecond
	// asideAgain is how long to wait after the lead could not be given away.
	asideAgain = 10 * time.Second
	// reachTime is how long a peer that is to lead may take to respond.
	reachTime = 300 * time.Millisecond
	// waitTime is for how long a peer must wait to be spoken to.
	waitTime = 100 * time.Millisecond
)

// stepAside gives the lead of etcd to another node while this one owns the limits. The leader notices that an owner is
// dead, as it keeps the leases; if both die at once, a new leader must be elected first, and it lets all leases begin anew.
func (s *Server) stepAside(n *durable.Node) {
	var last time.Time
	s.every(asideEvery, func() {
		e := s.etcd.Server
		if n.Owner() == nil || e.Lead() != uint64(e.MemberID()) || time.Since(last) < asideAgain && !last.IsZero() {
			return
		}
		last = time.Now()
		if s.handOver(s.ctx) {
			last = time.Time{}
		}
	})
}

// handOver gives the lead to one of the other nodes that can be reached, if this one has it.
func (s *Server) handOver(ctx context.Context) bool {
	e := s.etcd.Server
	for _, m := range e.Cluster().Members() {
		if e.Lead() != uint64(e.MemberID()) || ctx.Err() != nil {
			break
		}
		if m.ID == e.MemberID() || m.IsLearner || !reachable(ctx, m.PeerURLs) {
			continue
		}
		short, cancel := context.WithTimeout(ctx, e.Cfg.ElectionTimeout()) // after which etcd gives up
		err := e.MoveLeader(short, uint64(e.MemberID()), uint64(m.ID))
		cancel()
		if err == nil {
			return true
		}
	}
	return false
}

// reachable reports whether a server listens at one of the URLs of a peer, and waits for a request: a proxy in between may take
// a connection, and close it as there is no server behind it.
func reachable(ctx context.Context, urls []string) bool {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil {
			continue
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", u.Host)
		if err != nil {
			continue
		}
		_ = conn.SetReadDeadline(time.Now().Add(waitTime))
		_, err = conn.Read(make([]byte, 1))
		_ = conn.Close()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return true
		}
	}
	return false
}
