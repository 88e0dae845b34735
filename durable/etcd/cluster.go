package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/etcd/forward"
)

// Cluster is a node with all that it needs: an etcd server or a client of one, an engine, and a listener for the other nodes.
// The zero Cluster is not usable: call [Join].
type Cluster struct {
	node     *durable.Node
	engine   *Engine
	server   *Server          // if etcd runs in this process
	client   *clientv3.Client // if it does not
	grpc     *grpc.Server
	listener net.Listener
	work     sync.WaitGroup
	once     sync.Once
	err      error
}

// Join starts a node, and returns when etcd can be used. The error is an *[weir.OptionError], or is about what could not be
// reached or opened. Progress is logged every few seconds; it ends with ctx, or with StartTimeout.
func Join(ctx context.Context, o ClusterOptions) (*Cluster, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Cluster{}
	if err := c.join(ctx, &o); err != nil {
		_ = c.Close() //nolint:contextcheck // it is closed even if ctx has ended
		return nil, err
	}
	return c, nil
}

func (c *Cluster) join(ctx context.Context, o *ClusterOptions) (err error) {
	address := o.Address
	if address != "" { // first, as it fails at once if it does
		var lc net.ListenConfig
		if c.listener, err = lc.Listen(ctx, "tcp", o.ListenAddress); err != nil {
			return fmt.Errorf("weir: the other nodes cannot be listened for: %w", err)
		}
		if host, port, _ := net.SplitHostPort(address); port == "0" {
			_, port, _ = net.SplitHostPort(c.listener.Addr().String())
			address = net.JoinHostPort(host, port)
		}
	} else if !o.Follower {
		address = "alone"
	}
	err = c.open(ctx, o)
	if err != nil {
		return err
	}
	var secure credentials.TransportCredentials
	if o.PeerTLS != nil {
		secure = credentials.NewTLS(clientTLS(o.PeerTLS))
	}
	c.node, err = durable.NewNode(durable.NodeOptions{ //nolint:contextcheck // a node outlasts joining
		Engine: c.engine, Address: address, Dial: forward.Dial(forward.DialOptions{Credentials: secure}), Follower: o.Follower,
		Owner: o.Owner, Requeue: o.Requeue, OwnerWait: o.OwnerWait, Logger: o.Logger,
	})
	if err != nil {
		return err //nolint:wrapcheck // it is ours
	}
	if c.listener != nil {
		c.grpc = forward.NewServer(serverTLS(o.PeerTLS))
		forward.Register(c.grpc, c.node) //nolint:contextcheck // a stream has its own
		c.work.Go(func() { _ = c.grpc.Serve(c.listener) })
	}
	if c.server != nil {
		c.server.node.Store(c.node)
		c.work.Go(func() { // others keep a lease for a server that cannot write
			select {
			case <-c.server.Failed():
				c.engine.end()
			case <-c.server.ctx.Done():
			}
		})
	}
	if c.server != nil && len(o.Peers) > 1 {
		c.work.Go(func() { c.server.stepAside(c.node) })
	}
	return nil
}

// open starts etcd, or connects to it.
func (c *Cluster) open(ctx context.Context, o *ClusterOptions) (err error) {
	var client *clientv3.Client
	if o.Directory != "" {
		c.server, err = Start(ctx, EmbeddedOptions{
			Directory: o.Directory, Name: o.Name, Peers: o.Peers, Listen: o.Listen, Join: o.Join, PeerCertFile: o.PeerCertFile,
			PeerKeyFile: o.PeerKeyFile, PeerCAFile: o.PeerCAFile, HeartbeatInterval: o.HeartbeatInterval, Quota: o.Quota,
			StartTimeout: o.StartTimeout, Logger: o.Logger, UnsafeNoFsync: o.UnsafeNoFsync,
		})
		if err != nil {
			return err
		}
		client = c.server.Client()
	} else {
		if c.client, err = connect(ctx, o); err != nil {
			return err
		}
		client = c.client
	}
	c.engine, err = New(client, Options{Prefix: o.Prefix, TTL: o.TTL})
	if err == nil && c.server != nil {
		c.engine.damaged, c.engine.leads = c.server.spoiled, c.server.etcd.Server.LeaderChangedNotify
	}
	return err
}

// serverTLS is what a node shows to peers that connect.
func serverTLS(t *tls.Config) *tls.Config {
	if t == nil {
		return nil
	}
	t = t.Clone()
	t.MinVersion = max(t.MinVersion, tls.VersionTLS12)
	if t.ClientCAs != nil {
		t.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return t
}

// clientTLS is what a node shows to the owner.
func clientTLS(t *tls.Config) *tls.Config {
	t = t.Clone()
	t.MinVersion = max(t.MinVersion, tls.VersionTLS12)
	return t
}

// connectPause is how long to wait before endpoints that did not respond are asked again.
const connectPause = 250 * time.Millisecond

// connect connects to an etcd cluster that exists, and waits until it responds.
func connect(ctx context.Context, o *ClusterOptions) (*clientv3.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, o.StartTimeout)
	defer cancel()
	where := fmt.Sprintf("%.500s", strings.Join(o.Endpoints, ", "))
	secure := o.TLS
	if secure != nil {
		secure = clientTLS(secure)
	}
	begin, said := time.Now(), time.Now()
	var cause error // as far as it is known better than that the time was up
	for {
		client, err := attempt(ctx, o, secure)
		if err == nil {
			return client, nil
		}
		if permanent(err) {
			return nil, fmt.Errorf("weir: the etcd cluster at %s refuses: check Username, Password and what they may do "+
				"below Prefix: %w", where, err)
		}
		if time.Since(said) >= progressEvery {
			said = time.Now()
			if why := probe(ctx, o.Endpoints, secure); why != nil {
				err = why
			}
			cause = err
			o.Logger.Warn("the etcd cluster of the durable limits does not answer", "endpoints", where,
				"waited", time.Since(begin).Round(time.Second).String(), "limit", o.StartTimeout.String(), "error", err.Error())
		}
		timer := time.NewTimer(connectPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			if err = cmp.Or(cause, err); !errors.Is(err, ctx.Err()) {
				err = fmt.Errorf("%w (%w)", err, ctx.Err())
			}
			return nil, fmt.Errorf("weir: the etcd cluster at %s did not reply within %v: check that it runs, has a majority, "+
				"and can be reached from here, and its certificates: %w", where, time.Since(begin).Round(time.Second/10), err)
		}
	}
}

// attemptTime is how long endpoints may take to respond before they are asked anew.
const attemptTime = 3 * time.Second

func attempt(ctx context.Context, o *ClusterOptions, secure *tls.Config) (*clientv3.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: o.Endpoints, Username: o.Username, Password: o.Password, TLS: secure, Logger: zap.NewNop(),
		DialTimeout: attemptTime, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(forward.ConnectParams), grpc.WithContextDialer(forward.DialTCP)},
	})
	if err != nil {
		return nil, fmt.Errorf("%w", err)
	}
	prefix := o.Prefix
	if prefix == "" {
		prefix = defaultPrefix
	}
	// This is read by a majority, as everything that matters will be.
	if _, err = client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil {
		_ = client.Close()
		return nil, fmt.Errorf("%w", err)
	}
	return client, nil
}

// Node is the node.
func (c *Cluster) Node() *durable.Node { return c.node }

// Engine is what the node agrees by with the others.
func (c *Cluster) Engine() *Engine { return c.engine }

// Server is the etcd server in this process, or nil if there is none.
func (c *Cluster) Server() *Server { return c.server }

// Address is where the node listens for others, "" if it does not.
func (c *Cluster) Address() string {
	if c.listener == nil {
		return ""
	}
	return c.listener.Addr().String()
}

// Failed is closed when the etcd server in this process cannot go on: see [Server]. Without one it is never closed.
func (c *Cluster) Failed() <-chan struct{} {
	if c.server == nil {
		return nil
	}
	return c.server.Failed()
}

// Close leaves the cluster: see [durable.Node.Close]. When it returns, nothing that Join has started goes on.
func (c *Cluster) Close() error {
	c.once.Do(func() {
		var all []error
		if c.engine != nil && c.server != nil && c.server.Err() != nil { // nothing can be handed over
			_ = c.engine.Close()
		}
		if c.node != nil {
			all = append(all, c.node.Close())
		}
		if c.grpc != nil {
			c.grpc.Stop()
		} else if c.listener != nil {
			_ = c.listener.Close()
		}
		if c.engine != nil {
			all = append(all, c.engine.Close())
		}
		if c.client != nil {
			if err := c.client.Close(); !errors.Is(err, context.Canceled) {
				all = append(all, err)
			}
		}
		if c.server != nil {
			all = append(all, c.server.Close())
		}
		c.work.Wait()
		c.err = errors.Join(all...)
	})
	return c.err
}

// Err is why Failed is closed, or nil if it is not.
func (c *Cluster) Err() error {
	if c.server == nil {
		return nil
	}
	return c.server.Err()
}
