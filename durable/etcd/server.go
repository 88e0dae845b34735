package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"github.com/weirhq/weir"
)

// EmbeddedOptions configure an etcd server in this process.
type EmbeddedOptions struct {
	// Directory is where its data is kept; it is made if it does not exist, for the user of the process alone. Required.
	Directory string
	// Name is that of this node among its peers. Default: "weir".
	Name string
	// Peers are the URLs that the nodes reach each other by, by the names of the nodes, this one included, such as
	// "http://10.0.0.1:7090". All nodes must have the same. Default: none: this is the only node, and no port is opened.
	Peers map[string]string
	// Listen is the URL on which this node listens for its peers. Default: its own of Peers.
	Listen string
	// Join says that the cluster exists already and this node has been added to it. Default: false, the nodes of Peers form it.
	Join bool
	// HeartbeatInterval is how often the leader of the cluster says that it is alive: from 10 ms to 5 s. An election begins when
	// nothing has been heard of it for ten times as long. Default: 50 ms.
	HeartbeatInterval time.Duration
	// StartTimeout is how long the server may take to be ready, which needs a majority of the nodes: from 1 s to 10 min.
	// Default: 1 min.
	StartTimeout time.Duration
	// UnsafeNoFsync does without fsync: faster by far on a disk, and a machine that loses power loses what it has promised, so that
	// permits are granted twice. For tests only.
	UnsafeNoFsync bool
}

// Server is an etcd server in this process.
type Server struct {
	etcd   *embed.Etcd
	client *clientv3.Client
}

const electionHeartbeats = 10

func (o *EmbeddedOptions) checked() (EmbeddedOptions, error) {
	c := *o
	if c.Name == "" {
		c.Name = "weir"
	}
	if c.HeartbeatInterval == 0 {
		c.HeartbeatInterval = 50 * time.Millisecond
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = time.Minute
	}
	wrong := func(option, value, accepted string) (EmbeddedOptions, error) {
		return c, &weir.OptionError{Option: "EmbeddedOptions." + option, Value: value, Accepted: accepted}
	}
	switch {
	case c.Directory == "":
		return wrong("Directory", `""`, "a directory for the data")
	case c.HeartbeatInterval < 10*time.Millisecond || c.HeartbeatInterval > 5*time.Second:
		return wrong("HeartbeatInterval", c.HeartbeatInterval.String(), "from 10ms to 5s")
	case c.StartTimeout < time.Second || c.StartTimeout > 10*time.Minute:
		return wrong("StartTimeout", c.StartTimeout.String(), "from 1s to 10m")
	case len(c.Peers) > 0 && c.Peers[c.Name] == "":
		return wrong("Peers", fmt.Sprintf("without %q", c.Name), "one URL for each node, this one included")
	}
	if c.Listen == "" {
		c.Listen = c.Peers[c.Name]
	}
	return c, nil
}

// Start starts a server, and answers when it is ready. The error is an *[weir.OptionError], or that of the server, such as that of
// a directory that another process uses.
func Start(ctx context.Context, o EmbeddedOptions) (*Server, error) {
	o, err := o.checked()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Directory, 0o700); err != nil {
		return nil, fmt.Errorf("weir: the directory of the durable limits: %w", err)
	}
	cfg := embed.NewConfig()
	cfg.Dir, cfg.Name = filepath.Clean(o.Directory), o.Name
	cfg.TickMs, cfg.ElectionMs = uint(o.HeartbeatInterval.Milliseconds()), uint(electionHeartbeats*o.HeartbeatInterval.Milliseconds()) //nolint:gosec // they are positive
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = nil, nil
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = nil, nil
	cfg.UnsafeNoFsync = o.UnsafeNoFsync
	cfg.LogLevel, cfg.LogOutputs = "error", []string{filepath.Join(os.DevNull)}
	cfg.Logger = "zap"
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = "periodic", "5m"
	if err := setPeers(cfg, o); err != nil {
		return nil, err
	}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("weir: the etcd server in %s: %w", cfg.Dir, err)
	}
	s := &Server{etcd: e}
	timer := time.NewTimer(o.StartTimeout)
	defer timer.Stop()
	select {
	case <-e.Server.ReadyNotify():
		s.client = v3client.New(e.Server)
		return s, nil
	case err = <-e.Err():
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = errors.New("it was not ready in time: a majority of the nodes must run and reach each other")
	}
	e.Server.HardStop()
	e.Close()
	return nil, fmt.Errorf("weir: the etcd server in %s: %w", cfg.Dir, err)
}

// alone is what a node advertises that has no peers; nothing listens there.
const alone = "http://127.0.0.1:2380"

// setPeers says who the nodes of the cluster are.
func setPeers(cfg *embed.Config, o EmbeddedOptions) error {
	peers := o.Peers
	if len(peers) == 0 {
		peers = map[string]string{o.Name: alone}
	} else {
		u, err := parse("Listen", o.Listen)
		if err != nil {
			return err
		}
		cfg.ListenPeerUrls = []url.URL{*u}
	}
	names := make([]string, 0, len(peers))
	for name := range peers {
		names = append(names, name)
	}
	slices.Sort(names)
	all := make([]string, 0, len(peers))
	for _, name := range names {
		u, err := parse("Peers", peers[name])
		if err != nil {
			return err
		}
		if name == o.Name {
			cfg.AdvertisePeerUrls = []url.URL{*u}
		}
		all = append(all, name+"="+u.String())
	}
	cfg.InitialCluster = strings.Join(all, ",")
	cfg.InitialClusterToken = "weir"
	if o.Join {
		cfg.ClusterState = embed.ClusterStateFlagExisting
	}
	return nil
}

func parse(option, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" || u.Path != "" {
		return nil, &weir.OptionError{
			Option: "EmbeddedOptions." + option, Value: fmt.Sprintf("%.80q", text), Accepted: "a URL such as http://10.0.0.1:7090",
		}
	}
	return u, nil
}

// Client talks to the server without a network. It is closed with the server.
func (s *Server) Client() *clientv3.Client { return s.client }

// Close stops the server.
func (s *Server) Close() error {
	err := s.client.Close()
	s.etcd.Close()
	if errors.Is(err, context.Canceled) {
		err = nil // as it always says
	}
	return err
}
