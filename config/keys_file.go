package config

import "github.com/weirhq/weir/config/yamlread"

var fileTable = tableOf(yamlread.Kind{What: "the file", Hints: map[string]string{
	keyLimits: `limits stand in a policy: write policies: {name: {limits: [...]}}`,
	"redis":   `did you mean "store"? write store: redis://host:6379`,
	"etcd":    `did you mean "cluster"? write cluster: {endpoints: [http://host:2379]}`,
	"durable": `did you mean "cluster"? write cluster: {directory: /var/lib/weir}`,
	// Those of a file of envoyproxy/ratelimit.
	"domain":      elsewhere,
	"descriptors": elsewhere,
}, Free: "x-"}, []key[*File]{
	custom(keyVersion, orEnv("number", `{"const": 1}`), yamlread.About{
		Text:    "The version of the format: 1.",
		Instead: required, Examples: `[1]`,
	}, (*decoder).version),
	shown[*File](keyStore, shape{
		"URL, or mapping, see [store](#store)",
		`{"anyOf": [{"type": "string", "pattern": "^(redis|rediss|valkey|valkeys|unix)://"}, {"$ref": "#/$defs/env"}, ` +
			`{"$ref": "#/$defs/store"}]}`,
	}, yamlread.About{
		Text:    "Where the states of [shared policies](shared.md) are kept: `redis://host:6379/0`.",
		Instead: unset,
		Examples: `["redis://redis:6379/0", "${REDIS_URL}", ` +
			`{"addresses": ["10.0.0.1:26379", "10.0.0.2:26379"], "master": "mymaster"}]`,
	}),
	shown[*File](keyCluster, defined("mapping, see [cluster](#cluster)", keyCluster), yamlread.About{
		Text:     "How this process takes part in the cluster that owns the policies with `durability: cluster`.",
		Instead:  "none",
		Examples: `[{"directory": "/var/lib/weir"}, {"endpoints": ["https://10.0.0.1:2379"], "address": "10.0.0.4:7091"}]`,
	}),
	shown[*File]("policies", shape{
		"mapping",
		`{"type": ["object", "null"], "maxProperties": 10000, "propertyNames": {"pattern": "^[ -.0-~]{1,128}$"}, ` +
			`"additionalProperties": {"$ref": "#/$defs/policy"}}`,
	}, yamlread.About{
		Text: "Policies by name, up to 10,000. A name has 1 to 128 printable ASCII characters and no `/`. A reload " +
			"keeps the state of a name.",
		Instead: unset, Examples: `[{"per-client": {"limit": "100/s", "key": "client.ip"}}]`,
	}),
	shown[*File]("rules", shape{
		"list",
		`{"type": ["array", "null"], "maxItems": 100000, "items": {"$ref": "#/$defs/rule"}}`,
	}, yamlread.About{
		Text:    "Rules in order, up to 100,000.",
		Instead: unset, Examples: `[[{"name": "all", "limits": "per-client"}]]`,
	}),
})

var fileNeeds = []need{{"", keyVersion, "it must be 1", "add version: 1"}}

// elsewhere is the hint for a reader who takes one configuration for another.
const elsewhere = "it is one of envoyproxy/ratelimit: " +
	"give it to weir serve by --ratelimit-config, and check it by --ratelimit"
