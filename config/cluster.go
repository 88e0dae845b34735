package config

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/weirhq/weir/config/yamlread"
)

// Cluster is how this process takes part in the cluster that owns the policies of durability cluster. Nothing has been started:
// that is for the program. What has its zero value was not given. Directory and the files are below the directory of the file, if
// they were not absolute.
type Cluster struct {
	// Source is its place, such as "weir.yaml:3:1".
	Source string
	// Directory is where an etcd server in this process keeps its data, Name is that of this node among Peers, which are the URLs
	// of the servers by the names of their nodes, and Listen is the URL on which this one listens. Join is true if the node was
	// added to a cluster that exists.
	Directory, Name string
	Peers           map[string]string
	Listen          string
	Join            bool
	// Endpoints are those of an existing etcd cluster, in place of Directory; Username, Password and the files of TLS are for it.
	Endpoints                 []string
	Username, Password        string
	CAFile, CertFile, KeyFile string
	// File is where this process alone keeps the limits, in place of Directory and Endpoints.
	File string
	// Address is what the other nodes reach this one by, ListenAddress is where it listens for them. PeerCAFile, PeerCertFile and
	// PeerKeyFile secure that, in both directions.
	Address, ListenAddress                string
	PeerCAFile, PeerCertFile, PeerKeyFile string
	// Prefix is the beginning of the keys in etcd.
	Prefix string
	// TTL is how long the owner outlasts its last sign of life.
	TTL time.Duration
	// Reserve is how many permits a record may be ahead of what was allowed.
	Reserve int64
	// MaxKeys is how many keys the owner keeps in memory.
	MaxKeys int
	// Requeue lets a request whose owner has gone wait for the next one.
	Requeue bool

	place yamlread.Value
	where string // as it may be shown
}

// InFile is the cluster of a process that keeps its limits alone in a file: see [Options.StateFile].
func InFile(path string) *Cluster { return &Cluster{File: path, where: path} }

// String is where the cluster keeps its state, without what must not be shown: passwords, and what came from the environment.
func (c *Cluster) String() string { return c.where }

// GoString is String: a cluster that is printed with all its fields shows no password either.
func (c *Cluster) GoString() string { return "config.Cluster(" + strconv.Quote(c.where) + ")" }

// Same reports whether two clusters are the same with the same options, wherever their Source is. A nil Cluster is none.
func (c *Cluster) Same(o *Cluster) bool {
	if c == nil || o == nil {
		return c == o
	}
	a, b := *c, *o
	if !slices.Equal(a.Endpoints, b.Endpoints) || !maps.Equal(a.Peers, b.Peers) {
		return false
	}
	for _, x := range []*Cluster{&a, &b} {
		x.Endpoints, x.Peers, x.Source, x.where, x.place = nil, nil, "", "", yamlread.Value{}
	}
	return reflect.DeepEqual(a, b)
}

// ClusterErrors is the error of a program that refuses the cluster of a file, or that it has none.
func (f *File) ClusterErrors(message, fix string) *yamlread.Errors {
	m := yamlread.Mistake{File: f.Name, Line: 1, Column: 1, Path: keyCluster}
	if f.Cluster != nil && f.Cluster.Source != "" {
		m.Line, m.Column = f.Cluster.place.Key.Line, f.Cluster.place.Key.Column
	}
	m.Message, m.Fix = message, fix
	return &yamlread.Errors{File: f.Name, Mistakes: []yamlread.Mistake{m}}
}
