package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/etcd"
	"github.com/weirhq/weir/store"
)

// Joined is a node that has joined a cluster, as an *[etcd.Cluster] is.
type Joined interface {
	Node() *durable.Node
	// Failed is closed when it cannot go on, and Err is why.
	Failed() <-chan struct{}
	Err() error
	Close() error
}

// Cluster is the part that this process takes in the cluster of a configuration, as a store of limits. Until it has joined every
// call fails with [store.ErrUnavailable]. All of its methods are safe for concurrent use.
type Cluster struct {
	where   string
	address string
	gap     time.Duration // how long there may be no owner, while another node takes over
	join    func(context.Context) (Joined, error)
	log     *slog.Logger
	secure  map[string]*tls.Config // what shows a certificate, by to whom

	ctx   context.Context //nolint:containedctx // until Close
	end   context.CancelFunc
	ended chan struct{} // closed when no attempt to join is under way any more
	first chan error    // the outcome of the first attempt
	node  atomic.Pointer[member]
	why   atomic.Pointer[error] // why it has not joined
	idle  atomic.Bool           // it is not needed yet
}

// member is what there is once the process has joined.
type member struct {
	joined Joined
	node   *durable.Node
}

var _ store.Home = (*Cluster)(nil)

const (
	// patience is how long Open waits, so that limits usually can be used when it is back.
	patience = 2 * time.Second
	// goodbye is how long Close waits for an attempt to join that is under way.
	goodbye = 5 * time.Second
	// ownerGap is how long there may be no owner, beyond the TTL of one that has died, until this process is not ready.
	ownerGap = 5 * time.Second
	// Between two attempts to join.
	firstJoin = 100 * time.Millisecond
	lastJoin  = 2 * time.Second
)

var errJoining = errors.New("weir: etcd cannot be used yet: a majority of its nodes must run and reach each other, " +
	"and this process must reach them")

// OpenCluster joins the cluster. It does not fail if that takes long, or does not work now, which is logged and tried again
// until Close.
// The error says what is wrong with the section of the configuration; it is a *[flags.InputError].
func OpenCluster(ctx context.Context, c *config.Cluster, log *slog.Logger) (*Cluster, error) {
	if c.File != "" {
		l := IdleCluster(c, log)
		if err := l.Begin(); err != nil {
			return nil, flags.Inputf("%s", err)
		}
		return l, nil
	}
	options, err := ClusterOptions(c, log)
	if err != nil {
		return nil, err
	}
	l := newCluster(c.String(), c.Address, log, func(ctx context.Context) (Joined, error) { return etcd.Join(ctx, options) })
	l.gap += c.TTL
	l.secure = map[string]*tls.Config{"peers": options.PeerTLS, "etcd": options.TLS}
	if err := l.open(ctx); err != nil {
		return nil, wrong(c.Source, "%s", strings.TrimPrefix(err.Error(), "weir: "))
	}
	return l, nil
}

// ClusterOptions are those of a configuration. The error is a *[flags.InputError].
func ClusterOptions(c *config.Cluster, log *slog.Logger) (etcd.ClusterOptions, error) {
	o := etcd.ClusterOptions{
		Directory: c.Directory, Name: c.Name, Peers: c.Peers, Listen: c.Listen, Join: c.Join, Endpoints: c.Endpoints,
		Username: c.Username, Password: c.Password, Address: c.Address, ListenAddress: c.ListenAddress, Prefix: c.Prefix,
		TTL: c.TTL, Requeue: c.Requeue, Logger: log,
		Owner: durable.OwnerOptions{Reserve: c.Reserve, MaxKeys: c.MaxKeys, Logger: log},
	}
	var err error
	if o.TLS, err = etcdTLS(c, log); err != nil {
		return o, err
	}
	if o.PeerTLS, err = peerTLS(c, log); err != nil {
		return o, err
	}
	for _, url := range c.Peers {
		if strings.HasPrefix(url, "https:") { // the servers of etcd read the files themselves
			o.PeerCAFile, o.PeerCertFile, o.PeerKeyFile = c.PeerCAFile, c.PeerCertFile, c.PeerKeyFile
		}
	}
	return o, nil
}

func newCluster(where, address string, log *slog.Logger, join func(context.Context) (Joined, error)) *Cluster {
	l := &Cluster{
		where: where, address: address, gap: ownerGap, log: log, join: join, ended: make(chan struct{}),
		first: make(chan error, 1),
	}
	l.ctx, l.end = context.WithCancel(context.Background())
	err := errJoining
	l.why.Store(&err)
	return l
}

// open begins to join. The error is one that will not go away.
func (l *Cluster) open(ctx context.Context) error {
	go l.keepTrying() // it goes on when ctx has ended
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-l.first:
		if hopeless(err) && !errors.Is(err, etcd.ErrRepair) { // otherwise policies of other kinds are served
			l.end()
			return err
		}
	case <-timer.C:
		l.log.Warn("the cluster cannot be used yet: until it can, the fail of each policy of durability cluster decides",
			"cluster", l.where)
	case <-ctx.Done():
	}
	return nil
}

// hopeless reports whether an error needs an operator: an option that cannot be meant, or a directory that cannot be used.
func hopeless(err error) bool {
	if errors.Is(err, etcd.ErrRepair) {
		return true
	}
	if _, option := errors.AsType[*weir.OptionError](err); option {
		return true
	}
	_, file := errors.AsType[*fs.PathError](err)
	return file
}

func (l *Cluster) keepTrying() {
	defer close(l.ended)
	for wait := firstJoin; ; wait = min(2*wait, lastJoin) {
		joined, err := l.join(l.ctx)
		switch {
		case err == nil:
			l.use(joined)
		case l.ctx.Err() == nil:
			l.why.Store(&err)
		}
		select { // once that is known
		case l.first <- err:
		default: // it is not the first one
		}
		if err == nil {
			if err = l.takePart(joined); err == nil {
				return
			}
			wait = firstJoin // a disk that was full may have room again
		}
		if l.ctx.Err() != nil {
			return
		}
		if hopeless(err) {
			l.log.Error("the cluster cannot be used", "cluster", l.where, "error", err.Error())
			return
		}
		if wait == firstJoin {
			l.log.Warn("the cluster cannot be joined: until it can, the fail of each policy of durability cluster decides",
				"cluster", l.where, "error", err.Error())
		}
		timer := time.NewTimer(wait/2 + rand.N(wait/2)) //nolint:gosec // no secret
		select {
		case <-timer.C:
		case <-l.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// takePart waits until the node cannot go on, and returns why, or nil when the cluster is closed.
func (l *Cluster) takePart(joined Joined) error {
	select {
	case <-l.ctx.Done():
		return nil
	case <-joined.Failed():
		err := joined.Err()
		l.why.Store(&err)
		l.node.Store(nil)
		_ = joined.Close() // it hands nothing over any more
		return err
	}
}

// Ready returns nil, or why this process cannot decide on durable limits now: it does not take part in the cluster, or has
// reached no owner for longer than another node takes to become the owner.
func (l *Cluster) Ready() error {
	if l.idle.Load() {
		return nil
	}
	m := l.node.Load()
	if m == nil {
		return *l.why.Load()
	}
	select {
	case <-m.joined.Failed():
		return m.joined.Err()
	default:
	}
	if f, alone := m.joined.(*inFile); alone {
		return f.owns()
	}
	if m.node.OwnerUnreached() > l.gap {
		return unreached(m.node.Ownership().Address)
	}
	return nil
}

// unreached says that this process reaches no owner, of which the last one was at an address, if it has heard of any.
func unreached(address string) error {
	last := ""
	if address != "" {
		last = ", the last one was " + address
	}
	return fmt.Errorf("%w: no owner can be reached%s", store.ErrUnavailable, last)
}

// use takes the node into use.
func (l *Cluster) use(joined Joined) {
	m := &member{joined: joined, node: joined.Node()}
	l.node.Store(m)
	what := "the cluster is joined"
	if _, alone := joined.(*inFile); alone {
		what = "the file of limits is open"
	}
	l.log.Info(what, "cluster", l.where)
}

// member is the node, or why there is none.
func (l *Cluster) member() (*member, error) {
	if m := l.node.Load(); m != nil {
		return m, nil
	}
	return nil, &missing{*l.why.Load()}
}

// missing is why the process has not joined, which is a case of [store.ErrUnavailable].
type missing struct{ why error }

func (m *missing) Error() string {
	return store.ErrUnavailable.Error() + ": " + strings.TrimPrefix(m.why.Error(), "weir: ")
}

func (m *missing) Unwrap() []error { return []error{store.ErrUnavailable, m.why} }

// Close leaves the cluster: if this node is the owner another one takes over at once, and waiting calls get an error.
func (l *Cluster) Close() error {
	l.end()
	timer := time.NewTimer(goodbye)
	defer timer.Stop()
	select {
	case <-l.ended:
	case <-timer.C: // an attempt to join that cannot be interrupted ends with the process
	}
	if m := l.node.Load(); m != nil {
		return m.joined.Close() //nolint:wrapcheck // it is ours
	}
	return nil
}

// ClusterStatus is the state of a cluster as this process sees it.
type ClusterStatus struct {
	// Cluster is where etcd is, without what must not be shown.
	Cluster string `json:"cluster"`
	// Address is what other nodes reach this one by, "" if none does.
	Address string `json:"address"`
	// Joined reports whether the cluster was joined since the server has started, and Error why not.
	Joined bool   `json:"joined"`
	Error  string `json:"error,omitempty"`
	// Certificates are until when the certificates are valid that are shown to "peers" and to "etcd", as far as there are any.
	Certificates map[string]time.Time `json:"certificates,omitempty"`
	// NodeStats are those of the node.
	durable.NodeStats //nolint:embeddedstructfieldcheck // it follows what it is about, as in JSON
}

// Status returns the state.
func (l *Cluster) Status() ClusterStatus {
	s := ClusterStatus{Cluster: l.where, Address: l.address}
	for to, t := range l.secure {
		if end := expires(t); !end.IsZero() {
			if s.Certificates == nil {
				s.Certificates = make(map[string]time.Time, len(l.secure))
			}
			s.Certificates[to] = end
		}
	}
	if m := l.node.Load(); m != nil {
		s.Joined, s.NodeStats = true, m.node.Stats()
		return s
	}
	s.Error = (*l.why.Load()).Error()
	return s
}

// Where is where etcd is, without what must not be shown.
func (l *Cluster) Where() string { return l.where }

// Do implements [store.Home].
func (l *Cluster) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	m, err := l.member()
	if err != nil {
		return store.Hold{}, err
	}
	h, err := m.node.Do(ctx, ask, charges, decisions)
	return h, l.left(err)
}

// Settle implements [store.Home].
func (l *Cluster) Settle(ctx context.Context, h store.Hold, actual []int64) error {
	m, err := l.member()
	if err != nil {
		return err
	}
	return l.left(m.node.Settle(ctx, h, actual))
}

// left is the error of a call, where a node that could not go on and was closed meanwhile is one that is missing.
func (l *Cluster) left(err error) error {
	if errors.Is(err, store.ErrClosed) && l.ctx.Err() == nil {
		return &missing{*l.why.Load()}
	}
	return err
}

// Adjust is [durable.Node.Adjust].
func (l *Cluster) Adjust(ctx context.Context, limit weir.Limit, a durable.Adjustment) (durable.Adjustment, error) {
	m, err := l.member()
	if err != nil {
		return a, err
	}
	made, err := m.node.Adjust(ctx, limit, a)
	return made, l.left(err)
}

// Adjustments is [durable.Node.Adjustments].
func (l *Cluster) Adjustments(ctx context.Context, policy, key string, most int) ([]durable.Adjustment, error) {
	m, err := l.member()
	if err != nil {
		return nil, err
	}
	all, err := m.node.Adjustments(ctx, policy, key, most)
	return all, l.left(err)
}

// ErrNoServer says that a process has no etcd of its own, so that its nodes are changed with the tools of etcd.
var ErrNoServer = errors.New("weir: this server has no etcd of its own: " +
	"change the nodes of an etcd cluster with etcdctl; a file has none")

// server is the etcd server in this process.
func (l *Cluster) server() (*etcd.Server, error) {
	if l.idle.Load() {
		return nil, ErrNoServer
	}
	m, err := l.member()
	if err != nil {
		return nil, err
	}
	own, ok := m.joined.(interface{ Server() *etcd.Server })
	if !ok || own.Server() == nil {
		return nil, ErrNoServer
	}
	return own.Server(), nil
}

// Members is [etcd.Server.Members].
func (l *Cluster) Members(ctx context.Context) ([]etcd.Member, error) {
	s, err := l.server()
	if err != nil {
		return nil, err
	}
	return s.Members(ctx) //nolint:wrapcheck // it is ours
}

// RemoveMember is [etcd.Server.RemoveMember].
func (l *Cluster) RemoveMember(ctx context.Context, name string) error {
	s, err := l.server()
	if err != nil {
		return err
	}
	return s.RemoveMember(ctx, name) //nolint:wrapcheck // it is ours
}

// AddMember is [etcd.Server.AddMember].
func (l *Cluster) AddMember(ctx context.Context, name, url string) error {
	s, err := l.server()
	if err != nil {
		return err
	}
	return s.AddMember(ctx, name, url) //nolint:wrapcheck // it is ours
}
