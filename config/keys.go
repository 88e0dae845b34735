package config

import (
	"maps"
	"slices"
	"strings"
)

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

	tagInt = "!!int"
)

// kind is a mapping whose keys are fixed.
type kind struct {
	// what it is, in the words of a mistake.
	what string
	// keys are those that it has, with what each is for.
	keys map[string]string
	// hints are proposals for keys that people expect here.
	hints map[string]string
	// extensions tells that keys which begin with "x-" are free: anchors are put there.
	extensions bool
}

func (k kind) names() []string {
	names := make([]string, 0, len(k.keys))
	for name := range k.keys {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (k kind) ignored(key string) bool { return k.extensions && strings.HasPrefix(key, "x-") }

// with is a kind with further keys.
func (k kind) with(what string, keys map[string]string) kind {
	all := map[string]string{}
	maps.Copy(all, k.keys)
	maps.Copy(all, keys)
	k.what, k.keys = what, all
	return k
}

// The kinds of the format. The schema has a definition for each, and the documentation a table: tests compare them.
var (
	fileKind = kind{
		what: "the file",
		keys: map[string]string{
			"version":  "the version of the format",
			keyStore:   "where the states of shared policies are kept",
			keyCluster: "how this process takes part in the cluster that owns the policies of durability cluster",
			"policies": "limits by name",
			"rules":    "which limits apply to which requests",
		},
		hints: map[string]string{
			keyLimits: `limits stand in a policy: write policies: {name: {limits: [...]}}`,
			"redis":   `did you mean "store"? write store: redis://host:6379`,
			"etcd":    `did you mean "cluster"? write cluster: {endpoints: [http://host:2379]}`,
			"durable": `did you mean "cluster"? write cluster: {directory: /var/lib/weir}`,
			// Those of a file of envoyproxy/ratelimit.
			"domain":      elsewhere,
			"descriptors": elsewhere,
		},
		extensions: true,
	}
	limitsKind = kind{
		what: "a choice of limits",
		keys: map[string]string{
			keyLimit:  "one token bucket",
			keyBurst:  "the burst of limit",
			keyLimits: "one or several limits",
		},
		hints: map[string]string{
			keyRate:     `did you mean "limit"? rate is a key of the items of limits`,
			"algorithm": `algorithm is a key of the items of limits: write limits: [{algorithm: ..., rate: ...}]`,
			keyPermits:  `permits is a key of the items of limits: write limits: [{algorithm: concurrency, permits: ...}]`,
		},
	}
	policyKind = limitsKind.with("a policy", map[string]string{
		"key":       "what requests are counted under",
		"cost":      "how many permits a request costs",
		"mode":      "whether requests are refused",
		"candidate": "limits to be measured beside the live ones",
		"tiers":     "other limits for some classes of clients",
		"keys":      "other limits for some keys",
		"parent":    "another policy that applies as well",
		"queue":     "who waits, in which order, for how long",
		keyMaxKeys:  "how many keys are tracked",
		"when_full": "what a new key is told when as many are tracked",
		"lockout":   "locks out keys that are refused again and again",
		"fail":      "what happens to requests whose key, tier or cost cannot be told, or while the store is unavailable",
		"priority":  "the priority of requests in a program that sheds load",

		keyConsistency: "whether other processes share the policy, and how exactly they keep to it",
		keyHold:        "how long permits stay taken in the store if a request never ends",
		keyDurability:  "what the counts of the policy survive",
		keyPreset:      "what the policy has where it does not say so itself",
	})
	clusterKind = kind{
		what: "a cluster",
		keys: map[string]string{
			keyDirectory:     "where the etcd server in this process keeps its data",
			keyFile:          "where this process alone keeps the limits, without etcd",
			keyName:          "the name of this node among peers",
			keyPeers:         "the URLs of the etcd servers by the names of their nodes",
			"listen":         "the URL on which the etcd server of this node listens",
			"join":           "whether this node was added to a cluster that exists",
			keyEndpoints:     "the URLs of an etcd cluster",
			keyUsername:      "the user for endpoints",
			keyPassword:      "the password of the user",
			"ca_file":        "the authority that the servers at endpoints are certified by",
			"cert_file":      "the certificate that they are shown",
			"key_file":       "the key of that",
			keyAddress:       "what the other nodes reach this one by",
			"listen_address": "where this node listens for them",
			"peer_ca_file":   "the authority that nodes are certified by",
			"peer_cert_file": "the certificate of this node",
			"peer_key_file":  "the key of that",
			"prefix":         "begins the names of all keys",
			"ttl":            "how long the owner outlasts its last sign of life",
			keyReserve:       "how many permits a record may be ahead of what was allowed",
			keyMaxKeys:       "how many keys the owner keeps in memory",
			"requeue":        "whether a request whose owner has gone waits for the next one",
		},
		hints: map[string]string{
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
	storeKind = kind{
		what: "a store",
		keys: map[string]string{
			"url":               "where it is",
			"addresses":         "where it is, as a list of host:port",
			"master":            "the set that the sentinels at addresses watch",
			keyTLS:              "whether addresses are reached over TLS",
			keyUsername:         "the user",
			keyPassword:         "the password of the user",
			"sentinel_username": "the user for the sentinels",
			"sentinel_password": "the password for the sentinels",
			"database":          "the number of the database",
			"prefix":            "begins the names of all keys",
			"timeout":           "how long a decision waits for the store",
			"max_in_flight":     "how many requests may wait for the store",
			"connections":       "how many connections they share",
			"replicas":          "how many processes there are, until the store has told",
			"leased":            "options of leased policies",
			"optimistic":        "options of optimistic policies",
		},
		hints: map[string]string{
			keyAddress:   `did you mean "addresses"?`,
			keyHost:      `did you mean "addresses"? write addresses: [host:6379], or url`,
			"db":         `did you mean "database"?`,
			"master_set": `did you mean "master"?`,
			"user":       `did you mean "username"?`,
		},
	}
	leasedKind = kind{
		what: "leased",
		keys: map[string]string{
			"term":     "how long permits of a token bucket stay with a process",
			keyMaxKeys: "how many keys a process has blocks of",
		},
	}
	optimisticKind = kind{
		what: "optimistic",
		keys: map[string]string{
			"interval": "how often a process tells the store what it has allowed",
			"drift":    "how much it allows that the store does not know of",
			keyMaxKeys: "how many keys a process knows",
		},
	}
	limitKind = kind{
		what: "a limit",
		keys: map[string]string{
			keyName:     "tells the limits of a policy apart",
			"algorithm": "how permits are counted",
			keyRate:     "permits per period",
			keyBurst:    "how many permits a token bucket holds",
			"segments":  "into how many segments a sliding window is cut",
			keyPermits:  "how many permits are out at a time, or granted in a calendar window",
			keyEvery:    "the unit of the calendar",
			"zone":      "the time zone of the calendar",
			keyMonth:    "the month that a year begins with",
			keyDay:      "the day that a month or a year begins with",
			keyWeekday:  "the day that a week begins with",
			keyHour:     "the hour that a day begins with",
			keyMinute:   "the minute that an hour or a day begins with",
		},
		hints: map[string]string{
			"window":   `the window is the period of rate: write rate: 100/1m`,
			"period":   `the period is in rate: write rate: 100/1m`,
			keyLimit:   `did you mean "rate"? limit is the short form beside limits`,
			"requests": `permits and period are in rate: write rate: 100/1m`,
			"timezone": `did you mean "zone"?`,
		},
	}
	tiersKind = kind{
		what: "tiers",
		keys: map[string]string{"by": "chooses the tier of a request"},
	}
	queueKind = kind{
		what: "a queue",
		keys: map[string]string{
			keyLimit:   "how many permits callers wait for at a time",
			"order":    "who is served first",
			"max_wait": "how long a request waits at most",
		},
		hints: map[string]string{
			"timeout": `did you mean "max_wait"?`,
			"size":    `did you mean "limit"?`,
		},
	}
	lockoutKind = kind{
		what: "a lockout",
		keys: map[string]string{
			"refusals": "how many refusals within the time lead to it",
			"within":   "how long a refusal counts",
			"for":      "how long it lasts",
			"in_a_row": "whether a request that is allowed clears the count",
		},
	}
	ruleKind = kind{
		what: "a rule",
		keys: map[string]string{
			keyName:   "identifies the rule",
			"match":   "which requests it is for",
			"when":    "narrows that down",
			keyLimits: "the policies that it applies",
			keyExempt: "frees requests of all limits",
			keyDeny:   "refuses requests at once",
			"mode":    "whether a rule that denies only counts",
			"final":   "the rules behind are not looked at",
			"charge":  "whether its requests tell what has been spent already",
		},
		hints: map[string]string{
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
	matchKind = kind{
		what: "match",
		keys: map[string]string{
			keyMethod:  "methods",
			keyHost:    "hosts",
			keyPath:    "patterns of paths",
			"header":   "fields of the header",
			"client":   "addresses and networks",
			"route":    "names of routes",
			"protocol": "protocols",
		},
		hints: map[string]string{
			"ip":      `did you mean "client"?`,
			"when":    `write it beside match: when is a key of the rule`,
			keyLimits: `write it beside match: limits is a key of the rule`,
			keyExempt: `write it beside match: exempt is a key of the rule`,
			"deny":    `write it beside match: deny is a key of the rule`,
		},
	}
	useKind = kind{
		what: "a use of a policy",
		keys: map[string]string{
			"policy": "the policy",
			"key":    "what requests are counted under here",
			"cost":   "how many permits a request costs here",
		},
	}
)

// kinds are all of them by the names of their definitions in the schema.
var kinds = map[string]kind{
	"file": fileKind, keyLimits: limitsKind, "policy": policyKind, keyLimit: limitKind, "tiers": tiersKind, "queue": queueKind,
	"lockout": lockoutKind, "rule": ruleKind, "match": matchKind, "use": useKind, keyStore: storeKind, "leased": leasedKind,
	"optimistic": optimisticKind, keyCluster: clusterKind,
}

// elsewhere is the hint for whoever takes one configuration for another.
const elsewhere = "it is one of envoyproxy/ratelimit: " +
	"give it to weir serve by --ratelimit-config, and check it by --ratelimit"
