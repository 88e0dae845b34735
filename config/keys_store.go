package config

import (
	"strings"
	"time"

	"github.com/weirhq/weir/config/yamlread"
)

// storeUser is a user of a store.
var storeUser = accepting(textual("text", ""), "a text", "write default, for instance", nil)

var storeTable = tableOf(yamlread.Kind{What: "a store", Hints: map[string]string{
	keyAddress:   `did you mean "addresses"?`,
	keyHost:      `did you mean "addresses"? write addresses: [host:6379], or url`,
	"db":         `did you mean "database"?`,
	"master_set": `did you mean "master"?`,
	"user":       `did you mean "username"?`,
}}, []key[*Store]{
	shown[*Store]("url", orEnv("URL", `{"type": "string", "pattern": "^(redis|rediss|valkey|valkeys|unix)://"}`), yamlread.About{
		Text: "`redis://user:password@host:port/database`, `rediss://` over TLS, or `unix:///path?db=0`. " +
			"`?addr=host:port` adds a server of a cluster, or a sentinel; `master_set=name` says that they are sentinels. " +
			"Certificates are checked against those of the system, or on Linux of the file in `SSL_CERT_FILE`; " +
			"`skip_verify=true` accepts any, for trials.",
		Instead:  "this or `addresses` is required",
		Examples: `["redis://redis:6379/0", "rediss://weir:${REDIS_PASSWORD}@redis.example.com:6379"]`,
	}),
	shown[*Store]("addresses", oneOrManyURLs("host:port, or a list", `{"type": "string", "pattern": ":[0-9]+$"}`), yamlread.About{
		Text:     "A server, some servers of a cluster, or sentinels.",
		Examples: `[["10.0.0.1:6379", "10.0.0.2:6379"]]`,
	}),
	read("master", accepting(
		textual("name", ""), "the name of a set of servers", "write mymaster, for instance", nil,
	), yamlread.About{
		Text:    "The set that the sentinels at `addresses` watch.",
		Instead: "none, they are servers", Examples: `["mymaster"]`,
	}, func(s *Store, text string) { s.Master = text }),
	read(keyTLS, boolean, yamlread.About{
		Text:    "Whether the servers at `addresses` are reached over TLS.",
		Default: no, Examples: yes,
	}, func(s *Store, yes bool) { s.TLS = yes }),
	read(keyUsername, storeUser, yamlread.About{
		Text:    "The user.",
		Instead: "that of `url`, or none", Examples: `["weir"]`,
	}, func(s *Store, text string) { s.Username = text }),
	read(keyPassword, secret("REDIS_PASSWORD"), yamlread.About{
		Text:    "The password of the user. It is never shown.",
		Instead: "that of `url`, or none", Examples: `["${REDIS_PASSWORD}"]`,
	}, func(s *Store, text string) { s.Password = text }),
	read("sentinel_username", storeUser, yamlread.About{
		Text:    "The user for the sentinels.",
		Instead: unset, Examples: `["weir"]`,
	}, func(s *Store, text string) { s.SentinelUsername = text }),
	read("sentinel_password", secret("REDIS_PASSWORD"), yamlread.About{
		Text:    "The password for the sentinels. It is never shown.",
		Instead: unset, Examples: `["${SENTINEL_PASSWORD}"]`,
	}, func(s *Store, text string) { s.SentinelPassword = text }),
	read("database", number(0, 1<<16-1, "the number of a database"), yamlread.About{
		Text:    "The number of the database. A cluster has 0 only.",
		Instead: "that of `url`, or 0", Examples: `[0]`,
	}, func(s *Store, n int64) { s.Database = int(n) }),
	read("prefix", accepting(
		textual("1 to 128 bytes without braces", `"maxLength": 128, "pattern": "^[^{}]*$|\\$\\{[A-Za-z_]"`),
		"a text of 1 to 128 bytes without braces", "write weir:, for instance",
		func(text string) bool {
			return text != "" && len(text) <= mostPrefix && !strings.ContainsAny(text, "{}")
		},
	), yamlread.About{
		Text:    "Begins the names of all keys. Processes with the same prefix share their limits.",
		Instead: "`weir:`", Examples: `["weir:"]`,
	}, func(s *Store, text string) { s.Prefix = text }),
	read("timeout", duration(time.Millisecond, time.Minute), yamlread.About{
		Text:    "How long a decision waits for the store. Then `fail` of the policy counts.",
		Default: `"100ms"`, Examples: `["50ms"]`,
	}, func(s *Store, t time.Duration) { s.Timeout = t }),
	read("max_in_flight", number(1, 1<<20, "a number of requests"), yamlread.About{
		Text:    "How many requests may be waiting for the store. For others it is unavailable at once.",
		Default: `10000`, Examples: `[10000]`,
	}, func(s *Store, n int64) { s.MaxInFlight = int(n) }),
	custom("connections", orEnv("1, 2, 4 or 8", `{"enum": [1, 2, 4, 8]}`), yamlread.About{
		Text:    "How many connections to each server the requests share.",
		Default: `2`, Examples: `[2]`,
	}, func(d *decoder, v yamlread.Value, s *Store) { s.Connections = d.connections(v) }),
	read("replicas", number(1, 10_000, "a number of processes"), yamlread.About{
		Text:    "How many processes `fail: local` assumes in a server that starts while the store is unavailable.",
		Default: `1`, Examples: `[3]`,
	}, func(s *Store, n int64) { s.Replicas = int(n) }),
	custom("leased", defined("mapping, see [leased](#leased)", "leased"), yamlread.About{
		Text:     "Options of leased policies.",
		Examples: `[{"term": "1s"}]`,
	}, func(d *decoder, v yamlread.Value, s *Store) { fill(d, v, leasedTable, s) }),
	custom("optimistic", defined("mapping, see [optimistic](#optimistic)", "optimistic"), yamlread.About{
		Text:     "Options of optimistic policies.",
		Examples: `[{"interval": "100ms", "drift": "10%"}]`,
	}, func(d *decoder, v yamlread.Value, s *Store) { fill(d, v, optimisticTable, s) }),
})

var leasedTable = tableOf(yamlread.Kind{What: "leased"}, []key[*Store]{
	read("term", duration(10*time.Millisecond, time.Minute), yamlread.About{
		Text: "How long, at most, a process holds permits unspent. What comes back to a token bucket in a term is taken " +
			"off its burst, so the term must be the same in all processes.",
		Default: `"1s"`, Examples: `["1s"]`,
	}, func(s *Store, t time.Duration) { s.Leased.Term = t }),
	read(keyMaxKeys, keysAtATime, yamlread.About{
		Text:    "How many keys a process has blocks of at a time. For others the store is asked each time.",
		Default: million, Examples: fewer,
	}, func(s *Store, n int64) { s.Leased.MaxKeys = int(n) }),
})

var optimisticTable = tableOf(yamlread.Kind{What: "optimistic"}, []key[*Store]{
	read("interval", duration(time.Millisecond, time.Minute), yamlread.About{
		Text:    "How often a process tells the store what it has allowed.",
		Default: `"100ms"`, Examples: `["100ms"]`,
	}, func(s *Store, t time.Duration) { s.Optimistic.Interval = t }),
	custom("drift", orEnv("1% to 100%", `{"type": "string", "pattern": "^[0-9][0-9_]*%$"}`), yamlread.About{
		Text:    "How much of a limit a process allows that the store does not know of yet.",
		Default: `"10%"`, Examples: `["10%"]`,
	}, func(d *decoder, v yamlread.Value, s *Store) { s.Optimistic.Drift = d.percent(v) }),
	read(keyMaxKeys, keysAtATime, yamlread.About{
		Text:    "How many keys a process knows at a time. For others the store is asked each time.",
		Default: million, Examples: fewer,
	}, func(s *Store, n int64) { s.Optimistic.MaxKeys = int(n) }),
})
