package etcd

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir"
)

// EmbeddedOptions configure an etcd server in this process.
type EmbeddedOptions struct {
	// Directory is where its data is kept; it is made if it does not exist, for the user of the process alone. Required.
	Directory string
	// Name is that of this node among its peers. Default: "weir".
	Name string
	// Peers are the URLs that the nodes reach each other by, by the names of the nodes, this one included, such as
	// "http://10.0.0.1:7090". All nodes must have the same. One that is started with another URL of its own, or with its first
	// one, tells the others. Default: none: this is the only node, and no port is opened.
	Peers map[string]string
	// Listen is the URL on which this node listens for its peers, with an IP address. Default: its own of Peers, or all addresses
	// of the machine if that has the name of a host.
	Listen string
	// Join is for a node that has been added to a cluster that exists already, see [Server.AddMember], and starts with an empty
	// directory. Default: false, the nodes of Peers form the cluster, which needs all of them once.
	Join bool
	// HeartbeatInterval is how often the leader of the cluster reports that it is alive: from 10 ms to 5 s. An election begins
	// when nothing has been heard of it for ten times as long. Default: 50 ms.
	HeartbeatInterval time.Duration
	// StartTimeout is how long the server may take to be ready, which needs a majority of the nodes: from 1 s to 10 min.
	// Default: 1 min.
	StartTimeout time.Duration
	// PeerCertFile, PeerKeyFile and PeerCAFile are PEM files that secure the connections between nodes where Peers are URLs with
	// https. They are the certificate of this node, for its host of Peers, its key, and the authority that signed those of the
	// others. All three or none. They are read again for every connection, so that they can be renewed.
	PeerCertFile, PeerKeyFile, PeerCAFile string
	// Quota is how large the database can become in bytes: from 16 MiB to 8 GiB. Where there is no room, nothing is allowed. See
	// [Server]. Default: 2 GiB.
	Quota int64
	// Logger logs what etcd reports from a warning upwards, and the progress of starting. It gets at most 10 lines a second, and
	// the same about the same node at most every 10 s. Default: nil, silent.
	Logger *slog.Logger
	// UnsafeNoFsync does without fsync, which is much faster on a disk. A machine that loses power then loses what it has
	// allowed, so that permits are allowed twice. For tests only.
	UnsafeNoFsync bool
}

const (
	mostPeers = 9
	mostName  = 128
)

// checked are the options with their defaults, or what is wrong first.
func (o *EmbeddedOptions) checked() (EmbeddedOptions, error) {
	c := *o
	c.Name = cmp.Or(c.Name, "weir")
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, 50*time.Millisecond)
	c.StartTimeout = cmp.Or(c.StartTimeout, time.Minute)
	c.Quota = cmp.Or(c.Quota, 2<<30)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	for _, check := range []func() error{c.checkBounds, c.checkNode, c.checkPeers, c.checkListen} {
		if err := check(); err != nil {
			return c, err
		}
	}
	return c, nil
}

func wrongEmbedded(option, value, accepted string) error {
	return &weir.OptionError{Option: "EmbeddedOptions." + option, Value: value, Accepted: accepted}
}

// checkBounds checks what is required, and what must be in a range.
func (o *EmbeddedOptions) checkBounds() error {
	switch {
	case o.Directory == "":
		return wrongEmbedded("Directory", `""`, "a directory for the data")
	case o.HeartbeatInterval < 10*time.Millisecond || o.HeartbeatInterval > 5*time.Second:
		return wrongEmbedded("HeartbeatInterval", o.HeartbeatInterval.String(), "from 10ms to 5s")
	case o.StartTimeout < time.Second || o.StartTimeout > 10*time.Minute:
		return wrongEmbedded("StartTimeout", o.StartTimeout.String(), "from 1s to 10m")
	case o.Quota < 16<<20 || o.Quota > 8<<30:
		return wrongEmbedded("Quota", fmt.Sprint(o.Quota), "from 16 MiB to 8 GiB")
	}
	return nil
}

// checkNode checks that what is said of this node fits, and that it is one of Peers where there are any.
func (o *EmbeddedOptions) checkNode() error {
	switch {
	case len(o.Name) > mostName || strings.ContainsAny(o.Name, "=,"):
		return wrongEmbedded("Name", fmt.Sprintf("%.80q", o.Name), "at most 128 bytes without = and ,")
	case len(o.Peers) > mostPeers:
		return wrongEmbedded("Peers", fmt.Sprintf("%d nodes", len(o.Peers)), "at most 9 nodes")
	case len(o.Peers) == 0 && o.Listen != "":
		return wrongEmbedded("Listen", fmt.Sprintf("%.80q", o.Listen), "nothing where there are no Peers")
	case len(o.Peers) == 0 && o.Join:
		return wrongEmbedded("Join", "true", "false where there are no Peers")
	case (o.PeerCertFile == "") != (o.PeerKeyFile == "") || (o.PeerCertFile == "") != (o.PeerCAFile == ""):
		value := fmt.Sprintf("%.80q", o.PeerCertFile)
		return wrongEmbedded("PeerCertFile", value, "all of PeerCertFile, PeerKeyFile and PeerCAFile, or none")
	case len(o.Peers) > 0 && o.Peers[o.Name] == "":
		return wrongEmbedded("Peers", fmt.Sprintf("without %q", o.Name), "one URL for each node, this one included")
	}
	return nil
}

// checkPeers checks the URLs of the nodes, of which that of this one is the default of Listen.
func (o *EmbeddedOptions) checkPeers() error {
	for _, name := range slices.Sorted(maps.Keys(o.Peers)) {
		u, err := parse("Peers", o.Peers[name])
		switch {
		case err != nil:
			return err
		case name == "" || len(name) > mostName || strings.ContainsAny(name, "=,"):
			return wrongEmbedded("Peers", fmt.Sprintf("%.80q", name), "names of 1 to 128 bytes without = and ,")
		case u.Scheme == secureScheme && o.PeerCertFile == "":
			return wrongEmbedded("PeerCertFile", `""`, "a file, as there are Peers with https")
		case u.Scheme == plainScheme && o.PeerCertFile != "":
			return wrongEmbedded("Peers", fmt.Sprintf("%.80q", o.Peers[name]), "https, as there is a PeerCertFile")
		}
		if name == o.Name && o.Listen == "" {
			if host := u.Hostname(); net.ParseIP(host) == nil && host != "localhost" {
				u.Host = net.JoinHostPort("0.0.0.0", u.Port())
			}
			o.Listen = u.String()
		}
	}
	return nil
}

// checkListen checks the URL that this node listens on, if it has peers.
func (o *EmbeddedOptions) checkListen() error {
	if o.Listen == "" {
		return nil
	}
	u, err := parse("Listen", o.Listen)
	switch {
	case err != nil:
		return err
	case (u.Scheme == secureScheme) != (o.PeerCertFile != ""):
		return wrongEmbedded("Listen", fmt.Sprintf("%.80q", o.Listen), "the scheme of Peers")
	case net.ParseIP(u.Hostname()) == nil && u.Hostname() != "localhost":
		return wrongEmbedded("Listen", fmt.Sprintf("%.80q", o.Listen), "an IP address, such as 0.0.0.0 for all of them")
	}
	return nil
}

const (
	plainScheme  = "http"
	secureScheme = "https"
)

// web reports whether the scheme of a URL is one that etcd speaks.
func web(u *url.URL) bool { return u.Scheme == plainScheme || u.Scheme == secureScheme }

func parse(option, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || !web(u) || u.Hostname() == "" || u.Port() == "" || u.Path != "" {
		return nil, wrongEmbedded(option, fmt.Sprintf("%.80q", text), "a URL such as http://10.0.0.1:7090")
	}
	return u, nil
}
