package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/weirhq/weir/durable"
)

// Server is an etcd server in this process.
//
// It loses nothing that it has confirmed, as every write is in the log on the disk, with fsync, before that. With one node, a
// disk that is lost takes everything with it; with three, those of two nodes must be. UnsafeNoFsync gives that up.
//
// The database grows with the number of names, not with time. While this server leads, it drops old revisions every 10,000
// writes, and shrinks the file where most of it is free and it has come near its Quota. When the quota is reached, writes are
// refused, on all nodes, until there is room again, which is checked every second (TestQuota). If all records are in use, restart
// it with a greater quota.
//
// A server that cannot go on, as the disk is full or fails, or its data is damaged, does not end the process. Failed is closed,
// the reason is logged, and calls of its Client fail, so that another node takes over. Close it, and start a new one.
//
// The data on the disk is checked before it is used, and each time when the database has rested while it runs: see [ErrRepair]. A
// file that is made shorter, or whose first pages are overwritten, below a running server ends the process.
//
// After a power failure, a log that ends within a record is cut off there, as that write was not confirmed. etcd knows such a
// record by its end or by a whole sector of zeros. With any other damage, such as a wrong checksum, Start refuses the directory.
type Server struct {
	etcd    *member
	client  *clientv3.Client
	lock    *fileutil.LockedFile
	failure *failure
	apart   chan struct{} // closed when a server that cannot go on is cut off from its peers
	logger  *slog.Logger
	peers   map[string]string

	directory string
	repair    string // what to do about damage
	removed   error  // why it cannot go on once it was removed
	node      atomic.Pointer[durable.Node]
	sealed    *seal       // what was sealed last
	sealedIn  os.FileInfo // in which file
	peerTLS   transport.TLSInfo
	comparing atomic.Bool // what the others have
	quota     int64
	ctx       context.Context //nolint:containedctx // until Close
	end       context.CancelFunc
	work      tasks
	once      sync.Once
}

const electionHeartbeats = 10

// Start starts a server, and returns when it is ready. The error is an *[weir.OptionError], or the reason: another process uses
// the directory, a record there has a wrong checksum, or a majority of the nodes was not there in time.
func Start(ctx context.Context, o EmbeddedOptions) (*Server, error) {
	o, err := o.checked()
	if err != nil {
		return nil, err
	}
	o.Directory = filepath.Clean(o.Directory)
	cfg, failed, err := o.config()
	if err != nil {
		return nil, err
	}
	if err = os.MkdirAll(o.Directory, 0o700); err != nil {
		return nil, fmt.Errorf("weir: the directory of the durable limits: %w", err)
	}
	lock, err := fileutil.TryLockFile(filepath.Join(o.Directory, "weir.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		if errors.Is(err, fileutil.ErrLocked) {
			err = errors.New("another process uses it")
		}
		return nil, fmt.Errorf("weir: the directory of the durable limits %s: %w", o.Directory, err)
	}
	if err = room(o.Directory); err != nil { // before the directory is marked as one that was used
		_ = lock.Close()
		return nil, fmt.Errorf("weir: the etcd server in %s: %w", o.Directory, err)
	}
	waiting, done := context.WithTimeout(ctx, o.StartTimeout)
	cluster, members, err := o.prepare(waiting)
	done()
	if err != nil {
		_ = lock.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("weir: the etcd server in %s: %w", o.Directory, err)
	}
	if err = verify(o.Directory, len(o.Peers) <= 1); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("weir: the etcd server in %s: %w", o.Directory, o.wiped("%w", err))
	}
	cfg.InitialClusterToken = cluster
	if members != nil {
		cfg.InitialPeerURLsMap = members
	}
	s := &Server{
		lock: lock, peers: o.Peers, directory: o.Directory, repair: o.repair(), removed: o.removed(), failure: failed,
		apart: make(chan struct{}), logger: o.Logger, quota: o.Quota, peerTLS: cfg.PeerTLSInfo,
	}
	if s.etcd, err = s.start(ctx, cfg, &o); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("weir: the etcd server in %s: %w", o.Directory, err)
	}
	s.client = v3client.New(s.etcd.Server)
	s.ctx, s.end = context.WithCancel(context.Background())
	s.warnOfPeers(s.etcd.Server.Cluster().Members(), s.etcd.Server.MemberID())
	s.work.begin(s.maintain)
	s.work.begin(s.watchFailure)
	s.work.begin(s.watchRemoval)
	s.work.begin(s.promote)
	s.work.begin(s.move)
	s.work.begin(s.sealing)
	return s, nil
}

// warnOfPeers logs which nodes of Peers the cluster reaches by another URL: once it exists, that is the one that counts. The URL
// of this node is changed by move.
func (s *Server) warnOfPeers(all []*membership.Member, self types.ID) {
	for _, m := range all {
		if at, ok := s.peers[m.Name]; ok && m.ID != self && !slices.Contains(m.PeerURLs, at) {
			s.logger.Warn("a node has another URL in the peers of this node than in the cluster, which counts: correct it here, "+
				"or in the node itself, and restart that", "node", m.Name, "peers", at, "cluster", strings.Join(m.PeerURLs, ", "))
		}
	}
}

// room makes sure that the disk is not full: etcd that finds this while it starts leaves its files locked, and cannot be started
// again in this process when there is room.
func room(dir string) error {
	f, err := os.CreateTemp(dir, "room.*.tmp")
	if err != nil {
		return notYet(err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it is tried again
	return notYet(errors.Join(fileutil.Preallocate(f, roomBytes(), true), f.Close()))
}

// roomBytes is what etcd may take when it is started: a further file of its log, and a part of the database.
func roomBytes() int64 { return wal.SegmentSizeBytes / 4 * 5 } //nolint:mnd // a quarter for the database

// notYet is an error of a disk that may have room later.
func notYet(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("there must be room for %d MB: %s", roomBytes()>>20, err) //nolint:errorlint // it may go away
}

// progressEvery is how often it is logged that a server is not ready.
const progressEvery = 5 * time.Second

var (
	errNotReady = errors.New("it was not ready in time: check that a majority of the nodes of Peers run, reach each other by " +
		"these URLs, and have the same Peers")
	errFailed = errors.New("it could not be started")
)

// start starts etcd and waits until it is ready. What would end the process, or is a panic of etcd about its files, ends the
// goroutine that it happens in.
func (s *Server) start(ctx context.Context, cfg *config.ServerConfig, o *EmbeddedOptions) (*member, error) {
	type result struct {
		etcd *member
		err  error
	}
	started := make(chan result, 1)
	_, missing := os.Stat(filepath.Join(o.Directory, "member"))
	used := missing == nil
	go func() { //nolint:contextcheck // handshakes of peers have their own
		r := result{err: errFailed}
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("%w: %v", errFailed, p)
			}
			started <- r
		}()
		e, err := startMember(cfg, o, s.askedToLeave)
		r = result{e, err}
	}()
	timer := time.NewTimer(o.StartTimeout)
	defer timer.Stop()
	progress := time.NewTicker(progressEvery)
	defer progress.Stop()
	begin := time.Now()
	looking, done := context.WithCancel(ctx)
	defer done()
	var e *member
	var ready <-chan struct{}
	var failed <-chan error
	waiting := started
	for {
		var err error
		select {
		case r := <-waiting:
			waiting = nil
			if _, listens := errors.AsType[*net.OpError](r.err); r.err != nil && used && !listens {
				s.failure.fail(r.err)
			}
			if r.err == nil {
				e, ready, failed = r.etcd, answers(looking, r.etcd.Server), r.etcd.failed
				continue
			}
			err = r.err
		case <-ready:
			return e, nil
		case err = <-failed:
		case <-s.failure.done:
		case <-ctx.Done():
			err = ctx.Err()
		case <-timer.C:
			err = errNotReady
		case <-progress.C:
			o.Logger.Warn("the etcd server of the durable limits is not ready: a majority of the nodes is needed",
				"directory", o.Directory,
				"waited", time.Since(begin).Round(time.Second).String(), "limit", o.StartTimeout.String())
			continue
		}
		stopped := make(chan struct{})
		go func() { //nolint:contextcheck // it may take long, or never end, where it cannot be started
			defer close(stopped)
			if waiting != nil {
				e = (<-waiting).etcd
			}
			if e != nil {
				e.stop()
			}
		}()
		wait := time.NewTimer(closeTime)
		select {
		case <-stopped:
		case <-wait.C:
		}
		wait.Stop()
		select {
		case <-s.failure.done:
			return nil, o.unusable(s.failure)
		default:
			return nil, err
		}
	}
}

// unusable is why etcd cannot be started with what is in the directory. What the system says may be otherwise later, such as
// that the disk is full; anything else is damage.
func (o *EmbeddedOptions) unusable(f *failure) error {
	if strings.Contains(f.err.Error(), "data inconsistency with peers") && int(f.differ.Load()) <= len(o.Peers)/2 {
		return fmt.Errorf("the disk of this node or of another one is damaged, as they differ: no majority says yet which one "+
			"it is: %w", f.err)
	}
	for _, may := range []syscall.Errno{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM,
		syscall.EACCES,
	} {
		if strings.Contains(f.err.Error(), may.Error()) {
			return fmt.Errorf("what is in the directory cannot be used now: %w", f.err)
		}
	}
	return o.wiped("what is in the directory cannot be used: %w", f.err)
}

// answerTime is how long a server that starts may take to return what a majority must have told it, before it is asked again.
const answerTime = 500 * time.Millisecond

// answers is closed when a server can be used: it knows what a majority has agreed on. That is what etcd takes for being ready as
// well, but it finds out by a proposal, for which it waits for 6 s if that got lost while a leader was elected.
func answers(ctx context.Context, e *etcdserver.EtcdServer) <-chan struct{} {
	ready := make(chan struct{})
	go func() {
		for ctx.Err() == nil {
			short, cancel := context.WithTimeout(ctx, answerTime)
			err := e.LinearizableReadNotify(short)
			cancel()
			if err == nil {
				close(ready)
				return
			}
			pause := time.NewTimer(watchPause)
			select {
			case <-pause.C:
			case <-ctx.Done():
			case <-e.StopNotify():
				pause.Stop()
				return
			}
			pause.Stop()
		}
	}()
	return ready
}

// Client talks to the server without a network. It is closed with the server.
func (s *Server) Client() *clientv3.Client {
	s.made()
	return s.client
}

// made panics if s is a zero Server.
func (s *Server) made() {
	if s.client == nil {
		panic("weir: etcd: zero Server: make it by Start")
	}
}

// Failed is closed when the server cannot go on, and only a new one will.
func (s *Server) Failed() <-chan struct{} {
	s.made()
	return s.failure.done
}

// Err is why Failed is closed, or nil if it is not.
func (s *Server) Err() error {
	s.made()
	select {
	case <-s.failure.done:
		return fmt.Errorf("weir: the etcd server cannot go on: %w", s.failure.err)
	default:
		return nil
	}
}

// watchFailure cuts a server that cannot go on off from its peers, so that they do not count on it: etcd ends where it has failed
// and nowhere else, and would lead them if it could, without keeping a lease (TestFailedServerCannotLead).
func (s *Server) watchFailure() {
	select {
	case <-s.failure.done:
		s.etcd.Server.PauseSending()
		s.etcd.refusePeers()
		close(s.apart)
		what := "the etcd server of the durable limits cannot go on: this node takes no part until it has joined again"
		if errors.Is(s.failure.err, errRemoved) {
			what = "this node was removed from the cluster of the durable limits: it takes no part any more"
		}
		s.logger.Error(what, "error", s.failure.err.Error())
		_ = s.client.Close()
	case <-s.ctx.Done():
	}
}

// promote has a node that was added to its cluster vote, once it has all that the others have. Until it has told them its name it
// has no vote, so that one that was added and lost its disk before has given none.
func (s *Server) promote() {
	e := s.etcd.Server
	pause := time.NewTicker(formEvery)
	defer pause.Stop()
	for {
		self := e.Cluster().Member(e.MemberID())
		switch {
		case self == nil:
			return // it was removed
		case !self.IsLearner:
			return
		case self.Name != "":
			ctx, cancel := context.WithTimeout(s.ctx, formTime)
			_, err := e.PromoteMember(ctx, uint64(e.MemberID()))
			cancel()
			if err == nil {
				s.logger.Info("this node was added to the cluster of the durable limits, and votes now")
				return
			}
		}
		select {
		case <-pause.C:
		case <-s.failure.done:
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// move has the others reach this node by its URL of Peers, where the cluster still knows another one: it has another address than
// before, or was the only node.
func (s *Server) move() {
	e := s.etcd.Server
	to := e.Cfg.PeerURLs.StringSlice()
	pause := time.NewTicker(formEvery)
	defer pause.Stop()
	for said := false; ; {
		self := e.Cluster().Member(e.MemberID())
		if len(s.peers) == 0 || self == nil || slices.Equal(self.PeerURLs, to) {
			return
		}
		ctx, cancel := context.WithTimeout(s.ctx, formTime)
		_, err := s.client.MemberUpdate(ctx, uint64(e.MemberID()), to)
		cancel()
		switch {
		case err == nil:
			s.logger.Info("the other nodes reach this one by another URL now", "url", to[0], "before", self.PeerURLs[0])
			return
		case !said && s.ctx.Err() == nil:
			said = true
			s.logger.Warn("the other nodes are not told yet by which URL they reach this one", "url", to[0], "error", err.Error())
		}
		select {
		case <-pause.C:
		case <-s.failure.done:
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// closeTime is how long a server may take to stop that cannot go on.
const closeTime = 2 * time.Second

// Close stops the server. One that cannot go on is abandoned if it does not stop in 2 s.
func (s *Server) Close() error {
	s.made()
	var err error
	s.once.Do(func() {
		s.end()
		s.work.wait()
		if err = s.client.Close(); errors.Is(err, context.Canceled) {
			err = nil // as it always says
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			s.leave()
			s.failure.leaving.Store(true)
			s.etcd.stop()
		}()
		if s.Err() == nil {
			<-stopped
			_ = s.sealOnce() // damage is found at the next start
		} else {
			timer := time.NewTimer(closeTime)
			defer timer.Stop()
			select {
			case <-stopped:
			case <-timer.C:
			}
		}
		_ = s.lock.Close()
	})
	return err
}

// leaveTime is how long it may take to give the lead away before the server stops: it takes milliseconds if there is a majority.
const leaveTime = time.Second

// leave gives the lead away, so that the others need not notice first that it has ended. etcd would do so by itself, but waits
// for 6 s for a node that ends too.
func (s *Server) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	_ = s.handOver(ctx) // the others elect one
}
