package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

// TestJoinWaitsForOneThatLags: one node does not know yet that this one was added, or knows it as it was before it was removed.
// The node that is added waits until all say the same. It is refused at once if none knows that it was added, and when its time
// is over if one never does.
func TestJoinWaitsForOneThatLags(t *testing.T) {
	t.Parallel()
	const (
		before = `[{"id":1,"peerURLs":["http://own"],"name":"own"}]`
		absent = `[]`
		added  = `[{"id":2,"peerURLs":["http://own"],"isLearner":true}]`
	)
	for _, c := range []struct {
		first, second string
		rounds        int32 // of the second node until it has caught up
		repair        string
	}{
		{added, added, 0, ""},
		{added, before, 3, ""},
		{added, absent, 3, ""},
		{absent, added, 0, "never"},
		{absent, before, 9, "at once"},
		{before, absent, 9, "at once"},
	} {
		var asked atomic.Int32
		ctx, end := context.WithCancel(t.Context())
		t.Cleanup(end)
		url := func(f func() string) string {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Etcd-Cluster-Id", "abc")
				fmt.Fprint(w, f())
			}))
			t.Cleanup(s.Close)
			return s.URL
		}
		first := url(func() string { return c.first })
		second := url(func() string {
			n := asked.Add(1)
			if c.repair == "never" && n > 3 {
				end()
			}
			if n <= c.rounds {
				return c.second
			}
			return added
		})
		o := EmbeddedOptions{
			Name: "own", Directory: t.TempDir(), Join: true, Logger: slog.New(slog.DiscardHandler),
			Peers: map[string]string{"own": "http://own", "first": first, "second": second},
		}
		cluster, _, err := o.prepare(ctx)
		switch {
		case c.repair == "" && (err != nil || cluster != "weir" || asked.Load() != c.rounds+1):
			t.Errorf("%+v: %q, %v, asked %d times", c, cluster, err, asked.Load())
		case c.repair != "" && (err == nil || !strings.Contains(err.Error(), "weir cluster add own http://own")):
			t.Errorf("%+v: %v", c, err)
		case c.repair == "at once" && asked.Load() != 1:
			t.Errorf("%+v: asked %d times", c, asked.Load())
		}
	}
}

// TestPeersOfAnotherURLAreTold: a node that the cluster reaches by another URL than that of Peers is named in the log, once. That of
// the node itself is changed in the cluster, and one that the cluster does not have may be added later.
func TestPeersOfAnotherURLAreTold(t *testing.T) {
	t.Parallel()
	var logged strings.Builder
	s := &Server{
		peers:  map[string]string{"own": "http://own:1", "good": "http://good:1", "bad": "http://bad:1", "later": "http://later:1"},
		logger: slog.New(slog.NewTextHandler(&logged, nil)),
	}
	member := func(id types.ID, name, url string) *membership.Member {
		return &membership.Member{
			ID: id, Attributes: membership.Attributes{Name: name}, RaftAttributes: membership.RaftAttributes{PeerURLs: []string{url}},
		}
	}
	s.warnOfPeers([]*membership.Member{
		member(1, "own", "http://before:1"), member(2, "good", "http://good:1"), member(3, "bad", "http://real:1"), member(4, "", "http://new:1"),
	}, 1)
	if text := logged.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "node=bad peers=http://bad:1 cluster=http://real:1") {
		t.Errorf("logged:\n%s", text)
	}
}
