package config

import "github.com/weirhq/weir/config/yamlread"

// The keys that are looked for in several places.
const (
	keyLimit     = "limit"
	keyLimits    = "limits"
	keyBurst     = "burst"
	keyRate      = "rate"
	keyPermits   = "permits"
	keyEvery     = "every"
	keyMonth     = "month"
	keyDay       = "day"
	keyWeekday   = "weekday"
	keyHour      = "hour"
	keyMinute    = "minute"
	keyPath      = "path"
	keyHost      = "host"
	keyMethod    = "method"
	keyMaxKeys   = "max_keys"
	keyStore     = "store"
	keyCluster   = "cluster"
	keyName      = "name"
	keyUsername  = "username"
	keyPassword  = "password"
	keyTLS       = "tls"
	keyEndpoints = "endpoints"
	keyDirectory = "directory"
	keyFile      = "file"
	keyReserve   = "reserve"
	keyPeers     = "peers"
	keyAddress   = "address"
	keyExempt    = "exempt"
	keyDeny      = "deny"
	keyQueue     = "queue"
)

// The kinds of the format. The schema has a definition for each, and the documentation a table: tests compare them.
var (
	fileKind = &yamlread.Kind{
		What: "the file",
		Keys: []string{
			keyCluster, "policies", "rules", keyStore, "version",
		},
		Hints: map[string]string{
			keyLimits: `limits stand in a policy: write policies: {name: {limits: [...]}}`,
			"redis":   `did you mean "store"? write store: redis://host:6379`,
			"etcd":    `did you mean "cluster"? write cluster: {endpoints: [http://host:2379]}`,
			"durable": `did you mean "cluster"? write cluster: {directory: /var/lib/weir}`,
			// Those of a file of envoyproxy/ratelimit.
			"domain":      elsewhere,
			"descriptors": elsewhere,
		},
		Free: "x-",
	}
	limitsKind = &yamlread.Kind{
		What: "a choice of limits",
		Keys: []string{
			keyBurst, keyLimit, keyLimits,
		},
		Hints: limitsHints,
	}
	policyKind = &yamlread.Kind{
		What: "a policy",
		Keys: []string{
			keyBurst, "candidate", keyConsistency, "cost", keyDurability, "fail", keyHold, "key", "keys", keyLimit, keyLimits,
			"lockout", keyMaxKeys, "mode", "parent", keyPreset, "priority", "queue", "tiers", "when_full",
		},
		Hints: limitsHints,
	}
	clusterKind = &yamlread.Kind{
		What: "a cluster",
		Keys: []string{
			keyAddress, "ca_file", "cert_file", keyDirectory, keyEndpoints, keyFile, "join", "key_file", "listen",
			"listen_address", keyMaxKeys, keyName, keyPassword, "peer_ca_file", "peer_cert_file", "peer_key_file", keyPeers,
			"prefix", "requeue", keyReserve, "ttl", keyUsername,
		},
		Hints: map[string]string{
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
		},
	}
	storeKind = &yamlread.Kind{
		What: "a store",
		Keys: []string{
			"addresses", "connections", "database", "leased", "master", "max_in_flight", "optimistic", keyPassword, "prefix",
			"replicas", "sentinel_password", "sentinel_username", "timeout", keyTLS, "url", keyUsername,
		},
		Hints: map[string]string{
			keyAddress:   `did you mean "addresses"?`,
			keyHost:      `did you mean "addresses"? write addresses: [host:6379], or url`,
			"db":         `did you mean "database"?`,
			"master_set": `did you mean "master"?`,
			"user":       `did you mean "username"?`,
		},
	}
	leasedKind = &yamlread.Kind{
		What: "leased",
		Keys: []string{
			keyMaxKeys, "term",
		},
	}
	optimisticKind = &yamlread.Kind{
		What: "optimistic",
		Keys: []string{
			"drift", "interval", keyMaxKeys,
		},
	}
	limitKind = &yamlread.Kind{
		What: "a limit",
		Keys: []string{
			"algorithm", keyBurst, keyDay, keyEvery, keyHour, keyMinute, keyMonth, keyName, keyPermits, keyRate, "segments",
			keyWeekday, "zone",
		},
		Hints: map[string]string{
			"window":   `the window is the period of rate: write rate: 100/1m`,
			"period":   `the period is in rate: write rate: 100/1m`,
			keyLimit:   `did you mean "rate"? limit is the short form beside limits`,
			"requests": `permits and period are in rate: write rate: 100/1m`,
			"timezone": `did you mean "zone"?`,
		},
	}
	tiersKind = &yamlread.Kind{
		What: "tiers",
		Keys: []string{"by"},
	}
	queueKind = &yamlread.Kind{
		What: "a queue",
		Keys: []string{
			keyLimit, "max_wait", "order",
		},
		Hints: map[string]string{
			"timeout": `did you mean "max_wait"?`,
			"size":    `did you mean "limit"?`,
		},
	}
	lockoutKind = &yamlread.Kind{
		What: "a lockout",
		Keys: []string{
			"for", "in_a_row", "refusals", "within",
		},
	}
	ruleKind = &yamlread.Kind{
		What: "a rule",
		Keys: []string{
			"charge", keyDeny, keyExempt, "final", keyLimits, "match", "mode", keyName, "when",
		},
		Hints: map[string]string{
			"policy":   `did you mean "limits"?`,
			"policies": `did you mean "limits"?`,
			keyLimit:   `did you mean "limits"?`,
			"if":       `did you mean "when"?`,
			"block":    `did you mean "deny"? write deny: true`,
			"reject":   `did you mean "deny"? write deny: true`,
			"forbid":   `did you mean "deny"? write deny: true`,
			"allow":    `did you mean "exempt"? what no rule denies is allowed`,
			keyPath:    `write it below match, as match: {path: ...}`,
			keyHost:    `write it below match, as match: {host: ...}`,
			keyMethod:  `write it below match, as match: {method: ...}`,
			"header":   `write it below match, as match: {header: ...}`,
			"client":   `write it below match, as match: {client: ...}`,
		},
	}
	matchKind = &yamlread.Kind{
		What: "match",
		Keys: []string{
			"client", "header", keyHost, keyMethod, keyPath, "protocol", "route",
		},
		Hints: map[string]string{
			"ip":      `did you mean "client"?`,
			"when":    `write it beside match: when is a key of the rule`,
			keyLimits: `write it beside match: limits is a key of the rule`,
			keyExempt: `write it beside match: exempt is a key of the rule`,
			"deny":    `write it beside match: deny is a key of the rule`,
		},
	}
	useKind = &yamlread.Kind{
		What: "a use of a policy",
		Keys: []string{
			"cost", "key", "policy",
		},
	}
)

// limitsHints are those of limits, which a policy has as well.
var limitsHints = map[string]string{
	keyRate:     `did you mean "limit"? rate is a key of the items of limits`,
	"algorithm": `algorithm is a key of the items of limits: write limits: [{algorithm: ..., rate: ...}]`,
	keyPermits:  `permits is a key of the items of limits: write limits: [{algorithm: concurrency, permits: ...}]`,
}

// kinds are all of them by the names of their definitions in the schema.
var kinds = map[string]*yamlread.Kind{
	"file": fileKind, keyLimits: limitsKind, "policy": policyKind, keyLimit: limitKind, "tiers": tiersKind, "queue": queueKind,
	"lockout": lockoutKind, "rule": ruleKind, "match": matchKind, "use": useKind, keyStore: storeKind, "leased": leasedKind,
	"optimistic": optimisticKind, keyCluster: clusterKind,
}

// elsewhere is the hint for whoever takes one configuration for another.
const elsewhere = "it is one of envoyproxy/ratelimit: " +
	"give it to weir serve by --ratelimit-config, and check it by --ratelimit"
