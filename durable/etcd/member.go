package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/features"

	"github.com/weirhq/weir/durable/etcd/internal/strangers"
)

const (
	// keptFiles is how many old snapshots and files of the log etcd keeps.
	keptFiles = 5
	// mostInTxn and mostRequest bound a transaction and a request, as etcd does where nothing else is said.
	mostInTxn   = 128
	mostRequest = 3 << 19
	slowApply   = 100 * time.Millisecond
	slowRequest = 300 * time.Millisecond
	// compareEvery is how often the leader compares what the members have kept of old revisions.
	compareEvery   = time.Minute
	downgradeEvery = 5 * time.Second
	tokenSeconds   = 300
	bcryptCost     = 10
	peerReadTime   = 5 * time.Minute
	// peerHeaderTime bounds a handshake as well.
	peerHeaderTime = 10 * time.Second
	peerCloseTime  = time.Second
)

// member is an etcd server, and where its peers reach it. No client reaches it by the network.
type member struct {
	Server *etcdserver.EtcdServer
	peers  net.Listener // nil for a cluster of one node
	http   *http.Server
	failed chan error    // why peers are not served any more, or etcd has ended
	served chan struct{} // closed when they are not
}

// config is the configuration of etcd, but for its cluster. What is not of [EmbeddedOptions] is what etcd takes by default.
func (o *EmbeddedOptions) config() (*config.ServerConfig, *failure, error) {
	failed := newFailure(o.Directory)
	logger := zapLogger(o.Logger, failed)
	cfg := &config.ServerConfig{
		Name: o.Name, DataDir: o.Directory, Logger: logger, NewCluster: !o.Join,
		ServerFeatureGate: features.NewDefaultServerFeatureGate(o.Name, logger),
		PeerTLSInfo:       o.peerTLS(), UnsafeNoFsync: o.UnsafeNoFsync, QuotaBackendBytes: o.Quota,
		TickMs: uint(o.HeartbeatInterval.Milliseconds()), ElectionTicks: electionHeartbeats, // it is positive
		InitialElectionTickAdvance: true, PreVote: true, StrictReconfigCheck: true,
		SnapshotCount: etcdserver.DefaultSnapshotCount, SnapshotCatchUpEntries: etcdserver.DefaultSnapshotCatchUpEntries,
		MaxSnapFiles: keptFiles, MaxWALFiles: keptFiles,
		MaxTxnOps: mostInTxn, MaxRequestBytes: mostRequest, MaxConcurrentStreams: math.MaxUint32,
		MaxLearners: membership.DefaultMaxLearners,
		AuthToken:   "simple", TokenTTL: tokenSeconds, BcryptCost: bcryptCost,
		WarningApplyDuration: slowApply, WarningUnaryRequestDuration: slowRequest,
		CompactHashCheckTime: compareEvery, DowngradeCheckTime: downgradeEvery,
		V2Deprecation: config.V2DeprDefault, Metrics: "basic",
	}
	return cfg, failed, o.setPeers(cfg)
}

func (o *EmbeddedOptions) peerTLS() transport.TLSInfo {
	return transport.TLSInfo{
		CertFile: o.PeerCertFile, KeyFile: o.PeerKeyFile, TrustedCAFile: o.PeerCAFile, ClientCertAuth: o.PeerCAFile != "",
		MinVersion: tls.VersionTLS12,
	}
}

// alone is what a node advertises that has no peers; nothing listens there.
const alone = "http://127.0.0.1:2380"

// setPeers says which nodes the cluster has.
func (o *EmbeddedOptions) setPeers(cfg *config.ServerConfig) error {
	peers := o.Peers
	if len(peers) == 0 {
		peers = map[string]string{o.Name: alone}
	}
	all := make(types.URLsMap, len(peers))
	for name, text := range peers {
		u, err := parse("Peers", text)
		if err != nil {
			return err
		}
		all[name] = types.URLs{*u}
	}
	cfg.PeerURLs, cfg.InitialPeerURLsMap = all[o.Name], all
	return nil
}

// startMember starts etcd. It is not ready yet: a majority must be there first. What is on its disk is compared with what the
// others have before it takes part.
func startMember(cfg *config.ServerConfig, o *EmbeddedOptions, leave http.HandlerFunc) (*member, error) {
	m := &member{failed: make(chan error, 2), served: make(chan struct{})} //nolint:mnd // one of each goroutine
	if len(o.Peers) > 0 {
		u, err := parse("Listen", o.Listen)
		if err != nil {
			return nil, err
		}
		if m.peers, err = listenPeers(u, &cfg.PeerTLSInfo, o.Logger); err != nil {
			return nil, err
		}
	}
	used := hasLog(o.Directory)
	if used { // then the nodes are on the disk
		cfg.InitialPeerURLsMap = nil
	}
	var err error
	if m.Server, err = etcdserver.NewServer(*cfg); err != nil {
		m.refusePeers()
		return nil, err //nolint:wrapcheck // the caller says of which directory
	}
	if used {
		if err = m.Server.CorruptionChecker().InitialCheck(); err != nil {
			m.Server.Cleanup()
			m.refusePeers()
			return nil, err //nolint:wrapcheck // the caller says of which directory
		}
	}
	m.Server.Start()
	go func() {
		<-m.Server.StoppingNotify() // see watchRemoval
		m.failed <- o.removed()
	}()
	m.servePeers(cfg, leave)
	return m, nil
}

func (m *member) servePeers(cfg *config.ServerConfig, leave http.HandlerFunc) {
	if m.peers == nil {
		close(m.served)
		return
	}
	paths := http.NewServeMux()
	paths.Handle("/", etcdhttp.NewPeerHandler(cfg.Logger, m.Server))
	paths.HandleFunc(leavePath, leave)
	m.serve(paths)
}

// serve serves peers by a handler.
func (m *member) serve(h http.Handler) {
	m.http = &http.Server{
		Handler: h, ReadTimeout: peerReadTime, ReadHeaderTimeout: peerHeaderTime, ConnState: new(strangers.Strangers).Changed,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	go func() {
		defer close(m.served)
		if err := m.http.Serve(m.peers); !errors.Is(err, http.ErrServerClosed) {
			m.failed <- err
		}
	}()
}

// refusePeers has peers that dial be refused. The connections that there are go on.
func (m *member) refusePeers() {
	if m.peers != nil {
		_ = m.peers.Close()
	}
}

// stop stops etcd, which does not give the lead away any more.
func (m *member) stop() {
	m.Server.HardStop()
	if m.http != nil {
		ctx, cancel := context.WithTimeout(context.Background(), peerCloseTime)
		defer cancel()
		if m.http.Shutdown(ctx) != nil {
			_ = m.http.Close()
		}
	}
	m.refusePeers()
	<-m.served
}
