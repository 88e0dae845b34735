package config

import "time"

// Cluster says how this process takes part in the cluster that owns the policies of durability cluster. Nothing has been started: that
// is for the program. What has its zero value was not given.
type Cluster struct {
	// Source tells where it stands, such as "weir.yaml:3:1".
	Source string
	// Directory is where an etcd server in this process keeps its data, Name is that of this node among Peers, which are the URLs
	// of the servers by the names of their nodes, and Listen is the URL on which this one listens. Join says that the node was
	// added to a cluster that exists.
	Directory, Name string
	Peers           map[string]string
	Listen          string
	Join            bool
	// Endpoints are those of an existing etcd cluster, in place of Directory; Username, Password and the files of TLS are for it.
	Endpoints                 []string
	Username, Password        string
	CAFile, CertFile, KeyFile string
	// Address is what the other nodes reach this one by, ListenAddress is where it listens for them. PeerCAFile, PeerCertFile and
	// PeerKeyFile secure that, in both directions.
	Address, ListenAddress                string
	PeerCAFile, PeerCertFile, PeerKeyFile string
	// Prefix stands before the keys in etcd.
	Prefix string
	// TTL is how long the owner outlasts its last sign of life.
	TTL time.Duration
	// Reserve is how many permits a record may be ahead of what was granted.
	Reserve int64
	// MaxKeys is how many keys the owner keeps in memory.
	MaxKeys int
	// Requeue says that a request whose owner has gone waits for the next one.
	Requeue bool
}
