package etcd

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
)

// ClusterOptions configure a [Cluster]. Set either Directory or Endpoints to choose the etcd.
type ClusterOptions struct {
	// Directory is where an etcd server in this process keeps its data. These fields are about that server: Peers, Listen, Name,
	// Join, PeerCertFile, PeerKeyFile, PeerCAFile, HeartbeatInterval, Quota and UnsafeNoFsync: see [EmbeddedOptions].
	Directory                             string
	Name                                  string
	Peers                                 map[string]string
	Listen                                string
	Join                                  bool
	PeerCertFile, PeerKeyFile, PeerCAFile string
	HeartbeatInterval                     time.Duration
	Quota                                 int64
	UnsafeNoFsync                         bool
	// Endpoints are the URLs of an existing etcd cluster, such as "https://10.0.0.1:2379", at most 32.
	Endpoints []string
	// Username and Password are those for Endpoints. Default: "", none.
	Username, Password string
	// TLS is for Endpoints. Default: nil, that of the system for https, none for http.
	TLS *tls.Config
	// StartTimeout is how long it may take until etcd can be used, which needs a majority of its nodes: from 1 s to 10 min.
	// Default: 1 min.
	StartTimeout time.Duration
	// Address is where the other nodes reach this one, as host:port; ListenAddress is where it listens for them, by default the
	// same. A port 0 of Address is replaced by that of the listener. Required, except for the only node, which opens no port, and
	// for a Follower, which is not asked.
	Address, ListenAddress string
	// PeerTLS secures forwarded requests between nodes, in both directions. A node presents its Certificates, or for each
	// connection what GetCertificate and GetClientCertificate return, so that they can be renewed. Its RootCAs must have signed
	// that of the owner. Where there are ClientCAs, they must have signed those of all nodes. Default: nil, plain connections.
	PeerTLS *tls.Config
	// Prefix and TTL are those of [Options].
	Prefix string
	TTL    time.Duration
	// Owner, Requeue, OwnerWait and Follower are those of [durable.NodeOptions].
	Owner     durable.OwnerOptions
	Requeue   bool
	OwnerWait time.Duration
	Follower  bool
	// Logger logs what happens. Default: nil, silent.
	Logger *slog.Logger
}

const (
	mostEndpoints = 32
	mostText      = 1024
)

// check puts the defaults in, and says what is wrong first.
func (o *ClusterOptions) check() error {
	o.StartTimeout = cmp.Or(o.StartTimeout, time.Minute)
	o.ListenAddress = cmp.Or(o.ListenAddress, o.Address)
	for _, check := range []func() error{o.checkKind, o.checkClient, o.checkAddresses, o.checkEndpoints} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func wrongCluster(option, value, accepted string) error {
	return &weir.OptionError{Option: "ClusterOptions." + option, Value: value, Accepted: accepted}
}

// checkKind checks that it is clear which etcd it is, and that all options are about that.
func (o *ClusterOptions) checkKind() error {
	embedded := o.Directory != ""
	switch {
	case embedded == (len(o.Endpoints) > 0):
		value := fmt.Sprintf("%.80q with %d Endpoints", o.Directory, len(o.Endpoints))
		return wrongCluster("Directory", value, "one of Directory and Endpoints")
	case !embedded && o.aboutServer():
		value := fmt.Sprintf("%.80q", o.Endpoints[0])
		return wrongCluster("Endpoints", value, "no options of an etcd server in this process beside them")
	case embedded && (o.Username != "" || o.Password != "" || o.TLS != nil):
		return wrongCluster("Username", "with a Directory", "Username, Password and TLS with Endpoints only")
	}
	return nil
}

// aboutServer reports whether there are options of an etcd server in this process.
func (o *ClusterOptions) aboutServer() bool {
	return o.Name != "" || len(o.Peers) > 0 || o.Listen != "" || o.Join || o.PeerCertFile != "" || o.PeerKeyFile != "" ||
		o.PeerCAFile != "" || o.HeartbeatInterval != 0 || o.Quota != 0 || o.UnsafeNoFsync
}

// checkClient checks what a client of an existing cluster needs, and how long etcd may take.
func (o *ClusterOptions) checkClient() error {
	switch {
	case len(o.Endpoints) > mostEndpoints:
		return wrongCluster("Endpoints", fmt.Sprintf("%d of them", len(o.Endpoints)), "at most 32")
	case len(o.Username) > mostText || len(o.Password) > mostText:
		return wrongCluster("Username", "too long", "a Username and a Password of at most 1024 bytes each")
	case (o.Username == "") != (o.Password == ""):
		return wrongCluster("Username", fmt.Sprintf("%.80q", o.Username), "both of Username and Password, or none")
	case o.StartTimeout < time.Second || o.StartTimeout > 10*time.Minute:
		return wrongCluster("StartTimeout", o.StartTimeout.String(), "from 1s to 10m")
	}
	return nil
}

// checkAddresses checks where the nodes reach each other.
func (o *ClusterOptions) checkAddresses() error {
	switch {
	case o.Address == "" && !o.Follower && (o.Directory == "" || len(o.Peers) > 1):
		return wrongCluster("Address", `""`,
			"the host:port that other nodes reach this one by, unless it is the only one or a Follower")
	case o.Address == "" && o.ListenAddress != "":
		return wrongCluster("Address", `""`, "the host:port that other nodes reach this one by, where there is a ListenAddress")
	}
	const reached = "Address"
	for _, at := range [...]struct{ option, address string }{{reached, o.Address}, {"ListenAddress", o.ListenAddress}} {
		if at.address == "" {
			continue
		}
		host, port, err := net.SplitHostPort(at.address)
		if err != nil || port == "" || len(at.address) > mostText || at.option == reached && host == "" {
			return wrongCluster(at.option, fmt.Sprintf("%.80q", at.address), "host:port")
		}
	}
	return nil
}

// checkEndpoints checks the URLs of an existing cluster.
func (o *ClusterOptions) checkEndpoints() error {
	for _, e := range o.Endpoints {
		u, err := url.Parse(e)
		if err != nil || !web(u) || u.Hostname() == "" || u.Path != "" || u.User != nil || len(e) > mostText {
			return wrongCluster("Endpoints", redacted(e), "URLs such as https://10.0.0.1:2379, without user and password")
		}
		if o.TLS != nil && u.Scheme != secureScheme {
			return wrongCluster("Endpoints", fmt.Sprintf("%.80q", e), "https, as TLS is set")
		}
	}
	return nil
}

// redacted is a wrong endpoint as it can be shown.
func redacted(text string) string {
	if strings.Contains(text, "@") { // without it there is no user
		return "a URL with what may be a password, or none"
	}
	return fmt.Sprintf("%.80q", text)
}
