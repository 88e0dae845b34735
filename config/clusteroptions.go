package config

import (
	"iter"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/config/yamlread"
)

const (
	mostPrefixOfCluster = 256

	nodeNameIs  = "a name of 1 to 64 printable ASCII characters without = and ,"
	nodeURLIs   = "a URL of a host and a port, over http or https"
	nodeURLFix  = "write http://10.0.0.1:7090, for instance"
	addressIs   = "host:port"
	addressFix  = "write 10.0.0.1:7091, for instance"
	clusterFix  = "add file: /var/lib/weir/limits, for instance, or directory: /var/lib/weir"
	fileIs      = "the path of a file"
	fileFix     = "write /etc/weir/tls/ca.pem, for instance"
	secondsOnly = "whole seconds"
)

// cluster reads how this process takes part in a cluster.
func (d *decoder) cluster(v yamlread.Value) *Cluster {
	c := &Cluster{Source: d.Place(v), place: v}
	o, ok := fill(d, v, clusterTable, c)
	if !ok {
		return c
	}
	directory, embedded := o.Get(keyDirectory)
	endpoints, external := o.Get(keyEndpoints)
	file, alone := o.Get(keyFile)
	switch {
	case alone && (embedded || external):
		d.Wrong(file.OfKey(), "file stands beside directory or endpoints: there must be one of them",
			"remove file if the state is in etcd, or the others if this process is to keep it in a file")
	case embedded && external:
		d.Wrong(endpoints.OfKey(),
			"endpoints stand beside directory: there must be one of them",
			"remove directory if there is an etcd cluster, or endpoints if this process is to run etcd itself")
	case alone:
		c.where = d.written(file.Path, c.File)
	case embedded:
		c.where = d.written(directory.Path, c.Directory)
	case !external:
		o.Missing(keyDirectory,
			"is missing: a cluster needs directory, where this process runs etcd, the endpoints of an etcd cluster, "+
				"or file, where this process keeps the limits alone",
			clusterFix)
	}
	if alone {
		others := slices.DeleteFunc(slices.Clone(clusterTable.Kind.Keys), func(key string) bool {
			return key == keyFile || key == keyReserve || key == keyMaxKeys || key == keyDirectory || key == keyEndpoints
		})
		d.belongs(o, false, keyDirectory+" or "+keyEndpoints, "a file is of one process alone", others)
		return c
	}
	d.belongs(o, embedded || !external, keyDirectory, "an etcd cluster has its own",
		[]string{keyName, keyPeers, "listen", "join"})
	d.belongs(o, external || !embedded, keyEndpoints, "the etcd of this process has no clients over a network",
		[]string{keyUsername, keyPassword, "ca_file", "cert_file", "key_file"})
	d.needs(o, clusterNeeds)
	if c.CAFile+c.CertFile+c.KeyFile != "" && len(c.Endpoints) > 0 && !overTLS(slices.Values(c.Endpoints)) {
		d.Wrong(endpoints, "are reached over http, and files for TLS are given", "write https://, or remove the files")
	}
	d.ownServer(o, c)
	d.nodes(o, c, external)
	return c
}

// belongs finds keys that are for another kind of cluster.
func (d *decoder) belongs(o *yamlread.Object, fits bool, to, why string, keys []string) {
	for _, key := range keys {
		if v, given := o.Get(key); given && !fits {
			d.WrongAs(v.OfKey(), "", key+" belongs to "+to+": "+why, "remove it")
		}
	}
}

// ownServer finds what is wrong with the etcd server of this process.
func (d *decoder) ownServer(o *yamlread.Object, c *Cluster) {
	name, named := o.Get(keyName)
	_, several := o.Get(keyPeers)
	if several {
		names := slices.Sorted(maps.Keys(c.Peers))
		switch {
		case len(names) == 0 || named && c.Name == "":
		case !named:
			o.Missing(keyName, "is missing: with peers, a node needs the name that it has among them",
				"add name: "+names[0]+", for instance")
		case !slices.Contains(names, c.Name):
			fix := "there are " + yamlread.Shorten(yamlread.OneOf(names))
			if _, env := d.Shown[name.Path]; !env {
				fix = yamlread.Meant(c.Name, names, fix)
			}
			d.Wrong(name, "is none of peers: it must be the name that this node has among them", fix)
		}
	}
	if listen, given := o.Get("listen"); given && !several {
		d.Wrong(listen.OfKey(), "listen belongs to peers: a node that is alone opens no port", "add peers, or remove it")
	}
	if join, given := o.Get("join"); given && !several && c.Join {
		d.Wrong(join.OfKey(),
			"join belongs to peers: there is no cluster that a node alone could join", "add peers, or remove it")
	}
}

// peers reads the URLs of nodes by their names.
func (d *decoder) peers(v yamlread.Value, c *Cluster) {
	o, ok := d.Mapping(v, "name: URL for each node, this one included", "")
	if !ok {
		return
	}
	if len(o.Keys) == 0 || len(o.Keys) > mostClusterNodes {
		d.Wrong(v, "must have 1 to 9 nodes", "write {a: http://10.0.0.1:7090}, for instance")
		return
	}
	c.Peers = make(map[string]string, len(o.Keys))
	taken := map[string]string{}
	for _, name := range o.Keys {
		field := o.Fields[name]
		if !yamlread.IsName(name, mostLimitName, "=,") {
			d.Wrong(field.OfKey(), "must be "+nodeNameIs, "use letters, digits and hyphens")
			continue
		}
		at, ok := d.nodeURL(field, false)
		if other, twice := taken[at]; ok && twice {
			d.Wrong(field, "is that of "+other+" as well: each node has a URL of its own", "write its own host or port")
		}
		c.Peers[name] = at
		if ok {
			taken[at] = name
		}
	}
}

const mostClusterNodes = 9

// nodeURL reads the URL of an etcd server. A host may be missing where it listens.
func (d *decoder) nodeURL(v yamlread.Value, listens bool) (string, bool) {
	x, ok := d.Text(v, nodeURLIs, nodeURLFix)
	if !ok {
		return "", false
	}
	u, err := url.Parse(x.Text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" && !listens || !isPort(u.Port()) ||
		u.Path != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		fix := nodeURLFix
		switch {
		case err == nil && u.User != nil:
			fix = "remove the user from it; those of endpoints are username and password"
		case isAddress(x.Text, false) && !x.FromEnv:
			fix = "write http://" + x.Text
		}
		d.WrongAs(v, Redacted(v.Node.Value), "must be "+nodeURLIs, fix)
		return "", false
	}
	return x.Text, true
}

// endpoints reads where an etcd cluster is.
func (d *decoder) endpoints(v yamlread.Value, c *Cluster) {
	items, ok := d.oneOrList(v, "the URL of a server of etcd")
	if !ok {
		return
	}
	shown := make([]string, 0, len(items))
	for _, item := range items {
		if at, ok := d.nodeURL(item, false); ok {
			c.Endpoints = append(c.Endpoints, at)
			shown = append(shown, d.written(item.Path, at))
		}
	}
	c.where = strings.Join(shown, ", ")
}

// overTLS reports whether one of several URLs is reached by it.
func overTLS(urls iter.Seq[string]) bool {
	for at := range urls {
		if strings.HasPrefix(at, "https:") {
			return true
		}
	}
	return false
}

// file reads a path. One that is not absolute is below the directory of the file.
func (d *decoder) file(v yamlread.Value, must, fix string) string {
	x, ok := d.Text(v, must, fix)
	switch {
	case !ok:
		return ""
	case x.Text == "" || strings.ContainsRune(x.Text, 0):
		d.Wrong(v, "must be "+must, fix)
		return ""
	case filepath.IsAbs(x.Text):
		return filepath.Clean(x.Text)
	}
	return filepath.Join(filepath.Dir(d.File()), x.Text)
}

// nodes finds what is wrong with how the nodes reach each other.
func (d *decoder) nodes(o *yamlread.Object, c *Cluster, external bool) {
	address, given := o.Get(keyAddress)
	if given {
		d.reachable(address, c)
	} else if external || len(c.Peers) > 1 {
		o.Missing(keyAddress, "is missing: with other nodes, each needs the host:port that the others forward requests to",
			"add address: 10.0.0.1:7091, for instance")
	}
	if _, has := o.Get("peer_ca_file"); !has && overTLS(maps.Values(c.Peers)) {
		o.Missing("peer_ca_file", "is missing: peers are reached over https, and each shows the others a certificate",
			"add peer_ca_file, peer_cert_file and peer_key_file, or write http://")
	}
	d.belongs(o, given, keyAddress, "a node that is alone talks to no other",
		[]string{"peer_ca_file", "peer_cert_file", "peer_key_file"})
}

// reachable finds an address that stands for this machine on each machine, or is that of the etcd server of this node.
func (d *decoder) reachable(v yamlread.Value, c *Cluster) {
	host, _, _ := net.SplitHostPort(c.Address)
	switch ip := net.ParseIP(host); {
	case c.Address == "":
	case ip != nil && ip.IsUnspecified():
		d.Wrong(v, "must be an address by which the other nodes reach this one",
			"write its own address, and this one as listen_address")
	case c.Name != "" && c.Peers[c.Name] != "":
		if u, err := url.Parse(c.Peers[c.Name]); err == nil && u.Host == c.Address {
			d.Wrong(v, "is that of its etcd server in peers as well: each needs a port of its own", addressFix)
		}
	}
}

// address reads host:port. A host may be missing where it is listened.
func (d *decoder) address(v yamlread.Value, listens bool) string {
	x, ok := d.Text(v, addressIs, addressFix)
	if !ok {
		return ""
	}
	if !isAddress(x.Text, listens) {
		fix := addressFix
		if u, err := url.Parse(x.Text); err == nil && !x.FromEnv && u.Scheme != "" && isAddress(u.Host, listens) {
			fix = "write " + u.Host
		}
		d.WrongAs(v, Redacted(v.Node.Value), "must be "+addressIs, fix)
		return ""
	}
	return x.Text
}

func isAddress(text string, listens bool) bool {
	host, port, err := net.SplitHostPort(text)
	return err == nil && isPort(port) && (host != "" || listens) && !strings.ContainsAny(host, "/@ ")
}

// ttl reads how long the owner outlasts its last sign of life.
func (d *decoder) ttl(v yamlread.Value, c *Cluster) {
	c.TTL = d.Duration(v, time.Second, time.Hour)
	if c.TTL%time.Second != 0 {
		d.Wrong(v, "must be "+secondsOnly+": it is a lease of etcd", "write 2s, for instance")
	}
}

// clusterPrefix reads what begins the names of all keys.
func (d *decoder) clusterPrefix(v yamlread.Value) string {
	const must = "a text of 1 to 256 bytes that ends in /"
	fix := "write /weir/, for instance"
	x, ok := d.Text(v, must, fix)
	if !ok || len(x.Text) <= mostPrefixOfCluster && strings.HasSuffix(x.Text, "/") {
		return x.Text
	}
	if !x.FromEnv && x.Text != "" && len(x.Text) < mostPrefixOfCluster {
		fix = "write " + yamlread.Shorten(x.Text) + "/"
	}
	d.Wrong(v, "must be "+must, fix)
	return ""
}
