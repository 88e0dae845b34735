package etcd

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"

	"github.com/weirhq/weir/durable/etcd/internal/strangers"
)

// A node with an empty directory cannot know whether it has been here before, and one that has would vote with a memory that is
// gone. So a cluster is formed by all of its nodes: each has a directory with a random name, and starts etcd once all have told
// each other theirs and have written down what follows from them, which is the identity of the cluster. One that finds etcd at
// another node instead was here before, or comes too late, and refuses; one that finds no other waits. A node that lost its disk
// therefore never takes part in the cluster that knows it, whichever other nodes respond.

const (
	formPath   = "/weir/formation"
	formEvery  = 100 * time.Millisecond
	formTime   = 2 * time.Second
	formBytes  = 64 << 10
	notForming = http.StatusNotFound // what etcd responds
)

// formation is what a node tells others of a cluster that is being formed.
type formation struct {
	Name string `json:"name"`
	Disk string `json:"disk"`
	// Peers tells clusters apart.
	Peers string `json:"peers"`
	// Cluster is what the nodes have agreed on, as far as this one knows.
	Cluster string `json:"cluster,omitempty"`
}

// former takes part in forming a cluster.
type former struct {
	o      *EmbeddedOptions
	mark   *mark
	client *http.Client
	peers  string
	// existing are the nodes of a cluster that exists, this one included: there may be fewer than in Peers.
	existing types.URLsMap

	mu  sync.Mutex
	own formation
}

// prepare makes sure that a node may start etcd, and returns what its cluster is called, and its nodes if they need not be Peers.
// It waits for the other nodes where the cluster is to be formed.
func (o *EmbeddedOptions) prepare(ctx context.Context) (cluster string, members types.URLsMap, err error) {
	m, err := readMark(o.Directory)
	used := hasLog(o.Directory)
	switch {
	case err != nil && errors.Is(err, ErrRepair) && !used:
		return "", nil, o.wiped("%s is damaged", markFile)
	case err != nil && !errors.Is(err, ErrRepair):
		return "", nil, err
	case used: // etcd knows its cluster by its log
		if err != nil {
			m = &mark{Version: markVersion, Disk: strings.Repeat("0", 2*diskBytes), path: markPath(o.Directory)}
		}
		return "weir", nil, m.use()
	case m.Used:
		return "", nil, o.wiped("the log of etcd was in %s and is gone", o.Directory)
	case len(o.Peers) < 2:
		return "weir", nil, m.use()
	}
	info := o.peerTLS()
	round, err := transport.NewTransport(info, formTime)
	if err != nil {
		return "", nil, err //nolint:wrapcheck // it names the file
	}
	round.DisableKeepAlives = true
	f := &former{o: o, mark: m, client: &http.Client{Transport: round, Timeout: formTime}, peers: digestOf(o.Peers)}
	f.own = formation{Name: o.Name, Disk: m.Disk, Peers: f.peers, Cluster: m.Cluster}
	if o.Join {
		// An address that is not of this machine is told before the directory counts as used.
		l, err := o.listen(ctx)
		if err != nil {
			return "", nil, err
		}
		_ = l.Close()
		err = f.join(ctx)
		return "weir", f.existing, err
	}
	if m.Cluster == "" {
		if err := f.form(ctx, info); err != nil {
			return "", nil, err
		}
	}
	return m.Cluster, nil, m.use()
}

// listen listens where etcd will.
func (o *EmbeddedOptions) listen(ctx context.Context) (net.Listener, error) {
	u, err := url.Parse(o.Listen)
	if err != nil {
		return nil, err //nolint:wrapcheck // it was checked
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", u.Host) //nolint:wrapcheck // it says which address
}

func digestOf(m map[string]string) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(h, "%d:%s%d:%s", len(name), name, len(m[name]), m[name])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// form waits until all nodes are there and have agreed.
func (f *former) form(ctx context.Context, info transport.TLSInfo) error {
	stop, err := f.serve(ctx, info)
	if err != nil {
		return err
	}
	defer stop()
	v := &views{disks: map[string]string{f.o.Name: f.mark.Disk}, agreed: map[string]bool{f.o.Name: true}}
	said, begin := time.Now(), time.Now()
	tick := time.NewTicker(formEvery)
	defer tick.Stop()
	for {
		done, err := f.round(ctx, v)
		if err != nil || done {
			return err
		}
		if f.mark.Cluster == "" && f.known(v.disks) && !v.others {
			if err := f.agree(digestOf(v.disks)); err != nil {
				return err
			}
			continue
		}
		missing := strings.Join(v.missing, ", ")
		if time.Since(said) >= progressEvery {
			said = time.Now()
			f.o.Logger.Warn("the cluster of the durable limits is not formed yet: that needs all of its nodes, once. If it "+
				"has been formed before, and the disk of this node is lost: "+f.o.repair(),
				"waits for", missing, "waited", time.Since(begin).Round(time.Second).String())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: this node waits for %s", errNotFormed, missing)
		}
	}
}

// views are what a node knows of the others while they form a cluster.
type views struct {
	disks  map[string]string
	agreed map[string]bool
	// missing are those it waits for, and why. others is true if one of them has agreed to something else.
	missing []string
	others  bool
}

// round asks all nodes that have not agreed yet, and reports whether this one can go on.
func (f *former) round(ctx context.Context, v *views) (done bool, err error) {
	v.missing, v.others = nil, false
	for _, name := range slices.Sorted(maps.Keys(f.o.Peers)) {
		if v.agreed[name] {
			continue
		}
		other, err := f.ask(ctx, name)
		switch {
		case errors.Is(err, errFormed) && f.mark.Cluster != "": // it has gone on, as all have agreed
			return true, nil
		case errors.Is(err, errFormed):
			return false, f.refuse(ctx, name)
		case err != nil:
			v.missing = append(v.missing, fmt.Sprintf("%s (%s)", name, reason(err)))
			continue
		}
		v.disks[name] = other.Disk
		switch {
		case f.mark.Cluster != "" && other.Cluster == f.mark.Cluster:
			v.agreed[name] = true
		case other.Cluster == "" || !f.known(v.disks) || other.Cluster == digestOf(v.disks):
			v.missing = append(v.missing, name+" (it waits for others)")
		default:
			v.missing = append(v.missing, name+" (it has agreed to form the cluster with another disk: if the "+
				"cluster was never used, empty the directories of all nodes)")
			v.others = true
		}
	}
	return len(v.agreed) == len(f.o.Peers), nil
}

var (
	// errFormed says that a node runs etcd already.
	errFormed    = errors.New("it runs already")
	errNotFormed = errors.New("the cluster is not formed yet, which needs all of its nodes once (later a majority): check " +
		"that all nodes of Peers run, reach each other by these URLs, and have the same Peers; if it was formed before, and " +
		"the disk of this node is lost, remove the node from the cluster and add it again")
)

func (f *former) known(disks map[string]string) bool { return len(disks) == len(f.o.Peers) }

// agree writes down what the cluster is.
func (f *former) agree(cluster string) error {
	f.mark.Cluster = cluster
	if err := f.mark.write(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.own.Cluster = cluster
	return nil
}

// serve tells others of this node, where etcd will listen.
func (f *former) serve(ctx context.Context, info transport.TLSInfo) (stop func(), err error) {
	l, err := f.o.listen(ctx)
	if err != nil {
		return nil, err
	}
	if !info.Empty() {
		config, err := info.ServerConfig()
		if err != nil {
			_ = l.Close()
			return nil, err //nolint:wrapcheck // it names the file
		}
		l = tls.NewListener(l, config)
	}
	s := &http.Server{
		Handler: f, ReadTimeout: formTime, WriteTimeout: formTime, MaxHeaderBytes: formBytes,
		ConnState: new(strangers.Strangers).Changed,
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // a node that cannot connect tells why
	}
	s.SetKeepAlivesEnabled(false)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	return func() {
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), formTime)
		defer cancel()
		_ = s.Shutdown(short) // requests of this moment are still served
		_ = s.Close()
		<-done
	}, nil
}

// ServeHTTP implements [http.Handler].
func (f *former) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != formPath || r.Method != http.MethodGet {
		http.Error(w, "the cluster is not formed yet", http.StatusServiceUnavailable)
		return
	}
	f.mu.Lock()
	own := f.own
	f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(&own) //nolint:errchkjson // the other one asks again
}

// get asks a node.
func (f *former) get(ctx context.Context, name, path string, into any) (http.Header, int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.o.Peers[name]+path, http.NoBody)
	if err != nil {
		return nil, 0, err //nolint:wrapcheck // it names the URL
	}
	response, err := f.client.Do(r)
	if err != nil {
		return nil, 0, err //nolint:wrapcheck // it names the URL
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	if response.StatusCode != http.StatusOK {
		return response.Header, response.StatusCode, fmt.Errorf("it responds with status %d", response.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, formBytes))
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	return response.Header, response.StatusCode, err
}

// ask asks a node what it knows of the cluster that is being formed.
func (f *former) ask(ctx context.Context, name string) (formation, error) {
	var other formation
	_, status, err := f.get(ctx, name, formPath, &other)
	switch {
	case status == notForming:
		if _, _, failed := f.members(ctx, name); failed != nil {
			return other, fmt.Errorf("it is no node of a cluster: %w", failed)
		}
		return other, errFormed
	case err != nil:
		return other, err
	case other.Name != name:
		return other, fmt.Errorf("it is called %.80q", other.Name)
	case other.Peers != f.peers:
		return other, errors.New("it has other peers")
	case len(other.Disk) != 2*diskBytes:
		return other, errors.New("it has no disk")
	}
	return other, nil
}

// members are those that a node knows, and their cluster.
func (f *former) members(ctx context.Context, name string) (all []*membership.Member, cluster types.ID, err error) {
	header, _, err := f.get(ctx, name, "/members", &all)
	if err != nil {
		return nil, 0, err
	}
	cluster, err = types.IDFromString(header.Get("X-Etcd-Cluster-Id"))
	return all, cluster, err //nolint:wrapcheck // it is told of with the name
}

// self is the member of all with the URL of this node, nil if there is none.
func (f *former) self(all []*membership.Member) *membership.Member {
	for _, m := range all {
		if slices.Contains(m.PeerURLs, f.o.Peers[f.o.Name]) {
			return m
		}
	}
	return nil
}

// urls are those of the members of a cluster, as etcd is told them. It goes by the URLs, whatever the others are called.
func (f *former) urls(all []*membership.Member) types.URLsMap {
	urls, self := make(types.URLsMap, len(all)), f.self(all)
	for _, m := range all {
		name := m.ID.String()
		if m == self {
			name = f.o.Name
		}
		urls[name], _ = types.NewURLs(m.PeerURLs) // those of a cluster are URLs; otherwise etcd says so
	}
	return urls
}

// refuse is why a node with an empty directory does not form a cluster that another one is in.
func (f *former) refuse(ctx context.Context, name string) error {
	all, _, err := f.members(ctx, name)
	if err == nil && f.self(all) == nil {
		return f.notAdded(name)
	}
	return f.o.wiped("%s is in a cluster that knows this node, and the directory %s is empty: its disk was lost or replaced, "+
		"or the directory has another name", name, f.o.Directory)
}

func (f *former) notAdded(name string) error {
	return fmt.Errorf("%s is in a cluster that does not know this node: run `weir cluster add %s %s` there, set `join: true` in "+
		"the configuration of this node, and start it", name, f.o.Name, f.o.Peers[f.o.Name])
}

// join makes sure that this node was added to the cluster and has not been started since. A node that lags knows neither yet, so
// it waits until all nodes that respond say the same.
func (f *former) join(ctx context.Context) error {
	said := time.Now()
	tick := time.NewTicker(formEvery)
	defer tick.Stop()
	for {
		added, refusal, failed := f.joinable(ctx)
		switch {
		case !added && refusal != nil:
			return refusal
		case !added:
			return fmt.Errorf("no node of the cluster that is to be joined responds: %w", failed)
		case refusal == nil:
			return f.mark.use()
		}
		if time.Since(said) >= progressEvery {
			said = time.Now()
			f.o.Logger.Warn("some nodes of the cluster know that this node was added, and one does not: it waits until that one "+
				"has caught up or is stopped", "error", refusal)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return refusal
		}
	}
}

// joinable asks the other nodes. added reports whether one knows that this node was added and has not been started, refusal is
// what another one has against it, and failed are the errors of those that do not respond.
func (f *former) joinable(ctx context.Context) (added bool, refusal, failed error) {
	for _, name := range slices.Sorted(maps.Keys(f.o.Peers)) {
		if name == f.o.Name {
			continue
		}
		all, cluster, err := f.members(ctx, name)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
			continue
		}
		self := f.self(all)
		switch {
		case self == nil:
			refusal = f.notAdded(name)
		case !self.IsLearner || self.Name != "":
			refusal = f.o.wiped("%s knows that this node has been started before, and the directory %s is empty",
				name, f.o.Directory)
		default:
			added, f.mark.Cluster, f.existing = true, cluster.String(), f.urls(all)
		}
	}
	return added, refusal, failed
}

// reason is the last part of an error, which is what the system says.
func reason(err error) string {
	if e, is := errors.AsType[*url.Error](err); is {
		return e.Err.Error()
	}
	return err.Error()
}
