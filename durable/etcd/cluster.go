package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"time"

	"github.com/weirhq/weir/durable"
)

// ClusterOptions configure a [Cluster]: one of Directory and Endpoints says which etcd it is.
type ClusterOptions struct {
	// Directory is where an etcd server in this process keeps its data. Peers, Listen, Name and Join are about that server: see
	// [EmbeddedOptions].
	Directory string
	Name      string
	Peers     map[string]string
	Listen    string
	Join      bool
	// Endpoints are the URLs of an existing etcd cluster, such as "https://10.0.0.1:2379".
	Endpoints []string
	// Username and Password are those for Endpoints. Default: "", none.
	Username, Password string
	// TLS is for Endpoints. Default: nil, that of the system for https, none for http.
	TLS *tls.Config
	// Address is what the other nodes reach this one by, as host:port; ListenAddress is where it listens for them, by default
	// the same. Required, unless this is the only node.
	Address, ListenAddress string
	// PeerTLS secures what nodes tell each other when they forward requests, in both directions. Default: nil, plain connections.
	PeerTLS *tls.Config
	// Prefix and TTL are those of [Options].
	Prefix string
	TTL    time.Duration
	// Owner, Requeue and Follower are those of [durable.NodeOptions].
	Owner    durable.OwnerOptions
	Requeue  bool
	Follower bool
	// Logger is told what happens. Default: nil, silent.
	Logger *slog.Logger
}

// Cluster is a node with all that it needs: an etcd server or a client of one, an engine, and a listener for the other nodes.
type Cluster struct {
	node *durable.Node
}

// Join starts a node, and answers when etcd can be used. The error is an *[weir.OptionError], or that of etcd.
func Join(ctx context.Context, o ClusterOptions) (*Cluster, error) {
	return nil, errors.New("weir: not yet")
}

// Node is the node.
func (c *Cluster) Node() *durable.Node { return c.node }

// Address is where the node listens for others, "" if it does not.
func (c *Cluster) Address() string { return "" }

// Close leaves the cluster: see [durable.Node.Close].
func (c *Cluster) Close() error { return c.node.Close() }
