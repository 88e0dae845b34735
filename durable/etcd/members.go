package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirhq/weir"
)

// Member is a node as its cluster knows it.
type Member struct {
	// ID is the identity of the node in the cluster. One that is removed and added again gets another one.
	ID uint64
	// Name is that of the node, or "" if it was added and has not been started yet.
	Name string
	// URL is what the others reach it by.
	URL string
	// Started is true once it has been started, Learner while it has no vote yet, and Leader while it leads the others.
	Started, Learner, Leader bool
}

// ErrNoMember is returned if a cluster has no such node.
var ErrNoMember = errors.New("weir: the cluster has no such node")

// Members are the nodes of the cluster by their names.
func (s *Server) Members(ctx context.Context) ([]Member, error) {
	s.made()
	var r *clientv3.MemberListResponse
	err := settled(ctx, func(ctx context.Context) (failed error) {
		r, failed = s.client.MemberList(ctx)
		return failed //nolint:wrapcheck // by the caller
	})
	if err != nil {
		return nil, fmt.Errorf("weir: the nodes of the cluster: %w", err)
	}
	lead := s.etcd.Server.Lead()
	all := make([]Member, 0, len(r.Members))
	for _, m := range r.Members {
		one := Member{
			ID: m.GetID(), Name: m.GetName(), Started: m.GetName() != "", Learner: m.GetIsLearner(), Leader: m.GetID() == lead,
		}
		if urls := m.GetPeerURLs(); len(urls) > 0 {
			one.URL = urls[0]
		}
		if one.Name == "" {
			one.Name = s.nameOf(one.URL)
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Member) int { return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return all, nil
}

// nameOf is the name of a node by its URL, as far as this node knows.
func (s *Server) nameOf(url string) string {
	for name, at := range s.peers {
		if at == url {
			return name
		}
	}
	return ""
}

// settleTime is how long a call about the nodes waits for the cluster to settle: etcd changes none before the others have been
// connected for 5 s, and fails while they choose a leader.
const settleTime = 45 * time.Second

// tryTime is how long one try may take: a change that was proposed to a leader that is none any more never ends.
const tryTime = 5 * time.Second

// unsettled are what etcd says while the nodes choose a leader or one of them is slow.
var unsettled = []error{
	rpctypes.ErrLeaderChanged, rpctypes.ErrNoLeader, rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToLeaderFail,
	rpctypes.ErrTimeoutDueToConnectionLost,
}

// settled calls f, again and again while etcd says that the nodes are not connected yet or are choosing a leader.
func settled(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for {
		try, end := context.WithTimeout(ctx, tryTime)
		err := f(try)
		end()
		switch {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		case slices.ContainsFunc(unsettled, func(e error) bool { return errors.Is(err, e) }):
		case err != nil && strings.Contains(err.Error(), "unhealthy cluster"):
			err = fmt.Errorf("the other nodes must be up and connected for 5 s: %w", err)
		default:
			return err
		}
		pause := time.NewTimer(formEvery)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

// RemoveMember removes a node from the cluster for ever, which may be this one: what is on its disk is of no use then. If it owns
// the limits it hands over before. It fails with [ErrNoMember], or if too few others are up.
func (s *Server) RemoveMember(ctx context.Context, name string) error {
	all, err := s.Members(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(m Member) bool { return m.Name == name })
	if i < 0 {
		return fmt.Errorf("%w: %.80q", ErrNoMember, name)
	}
	if removable(all, i) {
		s.bid(ctx, &all[i])
	}
	err = settled(ctx, func(ctx context.Context) error {
		_, failed := s.client.MemberRemove(ctx, all[i].ID)
		if errors.Is(failed, rpctypes.ErrMemberNotFound) || failed != nil && s.isRemoved(all[i].ID) {
			return nil // a try before this one removed it and did not hear so, or it is this node, which stops then
		}
		return failed //nolint:wrapcheck // by the caller
	})
	if err != nil {
		return fmt.Errorf("weir: the node %.80q cannot be removed: %w", name, err)
	}
	return nil
}

// removable reports whether etcd removes a node that has a vote: more than half of the others that have one must have been
// started. Otherwise there is none that could own the limits in its place.
func removable(all []Member, i int) bool {
	if all[i].Learner || !all[i].Started {
		return false
	}
	votes, started := 0, 0
	for j := range all {
		if j == i || all[j].Learner {
			continue
		}
		votes++
		if all[j].Started {
			started++
		}
	}
	return started > votes/2
}

// isRemoved reports whether a node is this one, and has been removed from the cluster: it knows so, or the others were quicker
// and have told it to stop.
func (s *Server) isRemoved(id uint64) bool {
	e := s.etcd.Server
	if uint64(e.MemberID()) != id {
		return false
	}
	select {
	case <-e.StoppingNotify(): // see watchRemoval
		return s.ctx.Err() == nil
	default:
		return e.Cluster().Member(e.MemberID()) == nil
	}
}

// AddMember adds a node, which has a vote once it has been started and has all that the others have. The error is a
// *[weir.OptionError] if the name and the URL are not those of a node of Peers, or are there already.
func (s *Server) AddMember(ctx context.Context, name, url string) error {
	s.made()
	switch at, ok := s.peers[name]; {
	case len(s.peers) == 0:
		return &weir.OptionError{
			Option: "name", Value: fmt.Sprintf("%.80q", name),
			Accepted: "one of the peers of all nodes, and this node has none: " +
				"write name, peers and address into its section cluster, and restart it with the same directory",
		}
	case !ok:
		return &weir.OptionError{Option: "name", Value: fmt.Sprintf("%.80q", name), Accepted: "one of the peers of all nodes"}
	case at != url:
		return &weir.OptionError{Option: "url", Value: fmt.Sprintf("%.80q", url), Accepted: "that of the node in Peers, " + at}
	}
	all, err := s.Members(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(m Member) bool { return m.Name == name || m.URL == url }) {
		return &weir.OptionError{
			Option: "name", Value: fmt.Sprintf("%.80q", name), Accepted: "one that is not in the cluster: remove the node first",
		}
	}
	if i := slices.IndexFunc(all, func(m Member) bool { return m.Learner }); i >= 0 { // etcd takes one at a time
		return fmt.Errorf("weir: the node %.80q cannot be added: %.80q was added and does not vote yet, so start that one first",
			name, cmp.Or(all[i].Name, all[i].URL))
	}
	err = settled(ctx, func(ctx context.Context) error {
		_, failed := s.client.MemberAddAsLearner(ctx, []string{url})
		if errors.Is(failed, rpctypes.ErrPeerURLExist) || errors.Is(failed, rpctypes.ErrMemberExist) {
			return nil // a try before this one added it and did not hear so
		}
		return failed //nolint:wrapcheck // by the caller
	})
	if err != nil {
		return fmt.Errorf("weir: the node %.80q cannot be added: %w", name, err)
	}
	return nil
}
