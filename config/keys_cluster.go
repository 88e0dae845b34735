package config

import (
	"slices"

	"github.com/weirhq/weir/config/yamlread"
)

var clusterTable = tableOf(yamlread.Kind{What: "a cluster", Hints: map[string]string{
	"dir":         `did you mean "directory"?`,
	"data_dir":    `did you mean "directory"?`,
	"path":        `did you mean "directory"?`,
	"nodes":       `did you mean "peers"? write peers: {a: http://10.0.0.1:7090}`,
	"members":     `did you mean "peers"? write peers: {a: http://10.0.0.1:7090}`,
	"url":         `did you mean "endpoints"? write endpoints: [http://host:2379]`,
	"urls":        `did you mean "endpoints"?`,
	"endpoint":    `did you mean "endpoints"?`,
	"user":        `did you mean "username"?`,
	"lease":       `did you mean "ttl"?`,
	"listen_peer": `did you mean "listen"?`,
	"cacert":      `did you mean "ca_file"?`,
	keyTLS:        `write https:// in endpoints; ca_file, cert_file and key_file are the files`,
}}, []key[*Cluster]{
	read(keyDirectory, path("the path of a directory", "write /var/lib/weir, for instance"), yamlread.About{
		Text:    "Where the etcd server in this process keeps its data. It is made if it does not exist.",
		Instead: "this, `endpoints` or `file` is required", Examples: `["/var/lib/weir"]`,
	}, func(c *Cluster, text string) { c.Directory = text }),
	custom(keyName, textual(
		"1 to 64 printable ASCII characters without `=` and comma",
		`"pattern": "^[^=,]*$"`,
	), yamlread.About{
		Text:    "The name that this node has among `peers`.",
		Instead: "`weir`; required with `peers`", Examples: `["a"]`,
	}, func(d *decoder, v yamlread.Value, c *Cluster) { c.Name, _ = d.Name(v, nodeNameIs, mostLimitName, "=,") }),
	custom(keyPeers, shape{
		"mapping of names to URLs, up to 9",
		`{"type": "object", "minProperties": 1, "maxProperties": 9, "propertyNames": {"pattern": ` +
			`"^[ -+.-<>-~-]{1,64}$"}, "additionalProperties": {"anyOf": [{"type": "string", "pattern": ` +
			`"^https?://[^/@]+:[0-9]+$"}, {"$ref": "#/$defs/env"}]}}`,
	}, yamlread.About{
		Text: "The URLs that the etcd servers of the nodes reach each other by, this one included. They are the same in " +
			"all nodes.",
		Instead:  "none: this is the only node, and no port is opened",
		Examples: `[{"a": "http://10.0.0.1:7090", "b": "http://10.0.0.2:7090", "c": "http://10.0.0.3:7090"}]`,
	}, (*decoder).peers),
	custom("listen", orEnv("URL", `{"type": "string", "pattern": "^https?://[^/@]*:[0-9]+$"}`), yamlread.About{
		Text:    "The URL on which the etcd server of this node listens for those of its peers.",
		Instead: "its own of `peers`", Examples: `["http://0.0.0.0:7090"]`,
	}, func(d *decoder, v yamlread.Value, c *Cluster) { c.Listen, _ = d.nodeURL(v, true) }),
	read("join", boolean, yamlread.About{
		Text:    "Whether this node was added to a cluster that exists. Otherwise the nodes of `peers` form it.",
		Default: no, Examples: yes,
	}, func(c *Cluster, yes bool) { c.Join = yes }),
	custom(keyEndpoints, oneOrManyURLs(
		"URL, or a list",
		`{"type": "string", "pattern": "^https?://[^/@]+:[0-9]+$"}`,
	), yamlread.About{
		Text:     "The URLs of an etcd cluster, in place of `directory`.",
		Examples: `[["https://10.0.0.1:2379", "https://10.0.0.2:2379"]]`,
	}, (*decoder).endpoints),
	read(keyFile, path(fileIs, "write /var/lib/weir/limits, for instance"), yamlread.About{
		Text: "Where this process alone keeps the limits, without etcd, in place of `directory`. Beside it are " +
			"`reserve` and `max_keys` only. [What survives a restart](restart.md) has the rest.",
		Examples: `["/var/lib/weir/limits"]`,
	}, func(c *Cluster, text string) { c.File = text }),
	read(keyUsername, accepting(textual("text", ""), "a text", "write weir, for instance", nil), yamlread.About{
		Text:    "The user for `endpoints`.",
		Instead: unset, Examples: `["weir"]`,
	}, func(c *Cluster, text string) { c.Username = text }),
	read(keyPassword, secret("ETCD_PASSWORD"), yamlread.About{
		Text:    "The password of the user. It is never shown.",
		Instead: unset, Examples: `["${ETCD_PASSWORD}"]`,
	}, func(c *Cluster, text string) { c.Password = text }),
	read("ca_file", path(fileIs, fileFix), yamlread.About{
		Text:    "The authority by which the servers at `endpoints` are certified.",
		Instead: "the authorities that the system knows", Examples: `["/etc/weir/etcd-ca.pem"]`,
	}, func(c *Cluster, text string) { c.CAFile = text }),
	read("cert_file", path(fileIs, fileFix), yamlread.About{
		Text:    "The certificate that they are shown. A new one is read for new connections.",
		Instead: unset, Examples: `["/etc/weir/etcd.pem"]`,
	}, func(c *Cluster, text string) { c.CertFile = text }),
	read("key_file", path(fileIs, fileFix), yamlread.About{
		Text:    "The key of `cert_file`.",
		Instead: unset, Examples: `["/etc/weir/etcd-key.pem"]`,
	}, func(c *Cluster, text string) { c.KeyFile = text }),
	custom(keyAddress, orEnv("host:port", `{"type": "string", "pattern": "^[^/@ ]+:[0-9]+$"}`), yamlread.About{
		Text:    "What the other nodes reach this one by, to forward requests.",
		Instead: "required with `endpoints`, and with more than one of `peers`", Examples: `["10.0.0.1:7091"]`,
	}, func(d *decoder, v yamlread.Value, c *Cluster) { c.Address = d.address(v, false) }),
	custom("listen_address", orEnv("host:port", `{"type": "string", "pattern": "^[^/@ ]*:[0-9]+$"}`), yamlread.About{
		Text:    "Where this node listens for them.",
		Instead: "`address`", Examples: `[":7091"]`,
	}, func(d *decoder, v yamlread.Value, c *Cluster) { c.ListenAddress = d.address(v, true) }),
	read("peer_ca_file", path(fileIs, fileFix), yamlread.About{
		Text:    "The authority by which nodes are certified for one another. With it each must show a certificate of it.",
		Instead: unset, Examples: `["/etc/weir/nodes-ca.pem"]`,
	}, func(c *Cluster, text string) { c.PeerCAFile = text }),
	read("peer_cert_file", path(fileIs, fileFix), yamlread.About{
		Text:    "The certificate of this node. A new one is read for new connections.",
		Instead: "none: plain connections", Examples: `["/etc/weir/node.pem"]`,
	}, func(c *Cluster, text string) { c.PeerCertFile = text }),
	read("peer_key_file", path(fileIs, fileFix), yamlread.About{
		Text:    "The key of `peer_cert_file`.",
		Instead: unset, Examples: `["/etc/weir/node-key.pem"]`,
	}, func(c *Cluster, text string) { c.PeerKeyFile = text }),
	custom("prefix",
		textual("1 to 256 bytes that end in `/`", `"maxLength": 256, "pattern": "/$|\\$\\{[A-Za-z_]"`), yamlread.About{
			Text:    "Begins the names of all keys in etcd.",
			Instead: "`/weir/`", Examples: `["/weir/"]`,
		}, func(d *decoder, v yamlread.Value, c *Cluster) { c.Prefix = d.clusterPrefix(v) }),
	custom("ttl", defined("whole seconds, 1s to 1h", "duration"), yamlread.About{
		Text:    "How long the owner outlasts its last sign of life, before another node takes over.",
		Default: `"1s"`, Examples: `["2s"]`,
	}, (*decoder).ttl),
	read(keyReserve, permitCount, yamlread.About{
		Text: "How many permits a record may be ahead of what was allowed: a crash burns less than that, and allows " +
			"none twice. With 1 every request is written before it is allowed.",
		Instead: "up to a tenth of each limit, as it is in demand", Examples: `[1]`,
	}, func(c *Cluster, n int64) { c.Reserve = n }),
	read(keyMaxKeys, keysAtATime, yamlread.About{
		Text:    "How many keys the owner keeps in memory at a time.",
		Default: million, Examples: fewer,
	}, func(c *Cluster, n int64) { c.MaxKeys = int(n) }),
	read("requeue", boolean, yamlread.About{
		Text: "Whether a request whose owner has gone waits for the next one, at the end of its queue. Otherwise it is " +
			"told to come back.",
		Default: no, Examples: yes,
	}, func(c *Cluster, yes bool) { c.Requeue = yes }),
})

var clusterNeeds = slices.Concat([]need{
	{keyUsername, keyPassword, "username needs it", "add password: ${ETCD_PASSWORD}"},
	{keyPassword, keyUsername, "password needs it", "add username: weir, for instance"},
	{
		"listen_address", keyAddress, "listen_address needs it, as others must know where to go",
		"add address: 10.0.0.1:7091, for instance",
	},
	{
		"peer_ca_file", "peer_cert_file", "peer_ca_file needs it, as each node shows the others a certificate",
		"add peer_cert_file and peer_key_file",
	},
}, pairNeeds("cert_file", "key_file"), pairNeeds("peer_cert_file", "peer_key_file"))

// pairNeeds are those of the files of a certificate and of its key.
func pairNeeds(certificate, key string) []need {
	return []need{
		{certificate, key, certificate + " needs it", "add " + key + ": the file of its key"},
		{key, certificate, key + " needs it", "add " + certificate + ": the file of its certificate"},
	}
}
