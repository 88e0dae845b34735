package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

// schemaCompiler has the schema, and keeps the parts of it that it has compiled.
var schemaCompiler = sync.OnceValues(func() (*jsonschema.Compiler, error) {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		return nil, err
	}
	return c, c.AddResource("schema.json", doc)
})

// compiledSchema is the schema, or a part of it at a pointer.
func compiledSchema(t *testing.T, pointer string) *jsonschema.Schema {
	t.Helper()
	c, err := schemaCompiler()
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json" + pointer)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// definitions are those of the schema as JSON.
func definitions(t *testing.T) map[string]any {
	t.Helper()
	var doc struct {
		Defs map[string]any `json:"$defs"`
	}
	if err := json.Unmarshal(Schema(), &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Defs
}

// properties are those of the definition of a kind.
func properties(t *testing.T, name string) map[string]any {
	t.Helper()
	def, _ := definitions(t)[name].(map[string]any)
	if name == "use" {
		either, _ := def["anyOf"].([]any)
		def, _ = either[1].(map[string]any)
	}
	p, _ := def["properties"].(map[string]any)
	if len(p) == 0 {
		t.Fatalf("the schema has no properties of %s", name)
	}
	return p
}

func TestSchemaHasTheKeysOfTheDecoder(t *testing.T) {
	for _, k := range kinds() {
		name := k.name
		if got, want := slices.Sorted(maps.Keys(properties(t, name))), k.Keys; !slices.Equal(got, want) {
			t.Errorf("%s: the schema has %v, the decoder %v", name, got, want)
		}
	}
	for name := range definitions(t) {
		if !slices.ContainsFunc(kinds(), func(k kindOf) bool { return k.name == name }) && !slices.Contains([]string{"env", "rate", "duration"}, name) {
			t.Errorf("the schema defines %s, which the decoder does not know", name)
		}
	}
}

func TestSchemaDescribesEveryKey(t *testing.T) {
	for _, k := range kinds() {
		name := k.name
		for key, p := range properties(t, name) {
			property, _ := p.(map[string]any)
			if text, _ := property["description"].(string); !strings.HasSuffix(text, ".") {
				t.Errorf("%s.%s has no description", name, key)
			}
			examples, _ := property["examples"].([]any)
			either, _ := property["anyOf"].([]any)
			if len(examples) == 0 && !strings.Contains(fmt.Sprint(either), "enum") {
				t.Errorf("%s.%s has no examples", name, key)
			}
			pointer := "#/$defs/" + name + "/properties/" + key
			if name == "use" {
				pointer = "#/$defs/use/anyOf/1/properties/" + key
			}
			s := compiledSchema(t, pointer)
			for _, example := range examples {
				if err := s.Validate(example); err != nil {
					t.Errorf("%s.%s: an example does not hold: %v", name, key, err)
				}
			}
			if byDefault, given := property["default"]; given {
				if err := s.Validate(byDefault); err != nil {
					t.Errorf("%s.%s: the default does not hold: %v", name, key, err)
				}
			}
		}
	}
}

// plainYAML is a document as JSON has it.
func plainYAML(t *testing.T, text string) any {
	t.Helper()
	var doc any
	if err := yaml.Load([]byte(text), &doc); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	content, err := json.Marshal(stringKeys(doc))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	plain, err := jsonschema.UnmarshalJSON(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

func stringKeys(v any) any {
	switch v := v.(type) {
	case map[any]any:
		m := map[string]any{}
		for k, item := range v {
			m[fmt.Sprint(k)] = stringKeys(item)
		}
		return m
	case map[string]any:
		for k, item := range v {
			v[k] = stringKeys(item)
		}
	case []any:
		for i, item := range v {
			v[i] = stringKeys(item)
		}
	}
	return v
}

func testEnv(name string) (string, bool) {
	v, ok := map[string]string{"BURST": "7", "RATE": "9/s", "KEY": "client.ip", "MODE": "shadow", "YES": "true", "TTL": "3s", "STORE": "redis://h"}[name]
	return v, ok
}

// bare are policies, rules and limits without what must stand around them.
func inPolicy(s string) string { return "version: 1\npolicies:\n  p: {limit: 1/s, " + s + "}\n" }
func inLimit(s string) string  { return "version: 1\npolicies:\n  p: {limits: [{" + s + "}]}\n" }
func inShared(s string) string {
	return "version: 1\nstore: redis://h\npolicies:\n  p: {limit: 1/s, " + s + "}\n"
}

func inStore(s string) string {
	return "version: 1\nstore: " + s + "\npolicies:\n  p: {limit: 1/s, consistency: coherent}\n"
}

func inCluster(s string) string {
	return "version: 1\ncluster: " + s + "\npolicies:\n  p: {limit: 1/s, durability: cluster}\n"
}

func inDurable(s string) string {
	return "version: 1\ncluster: {directory: /d}\npolicies:\n  p: {limit: 1/s, " + s + "}\n"
}

func inPreset(s string) string {
	return "version: 1\ncluster: {directory: /d}\npolicies:\n  p: {preset: metered-api" + s + "}\n"
}

func inRule(s string) string {
	return "version: 1\npolicies:\n  p: {limit: 1/s}\nrules:\n  - {name: r, " + s + "}\n"
}
func inMatch(s string) string { return inRule("exempt: true, match: {" + s + "}") }

var validFiles = []string{
	"version: 1\n",
	"version: 1\npolicies:\nrules:\n",
	"version: 1\npolicies: {}\nrules: []\n",
	"version: 1\nx-anything: [1, {a: b}]\n",
	"version: ${V:-1}\n",
	inPolicy("burst: 5"), inPolicy("burst: 1_000"), "version: 1\npolicies:\n  p:\n    limit: ${RATE}\n    burst: ${BURST}\n", inPolicy(`burst: "${BURST}"`),
	inPolicy("key: client.ip"), inPolicy("key: '${KEY}'"), inPolicy(`key: [client.ip, 'request.headers["x"]']`),
	inPolicy("cost: 5"), inPolicy("cost: 0"), inPolicy("cost: request.cost"), inPolicy(`cost: 'int(request.headers["x"])'`),
	inPolicy("mode: shadow"), inPolicy("mode: '${MODE}'"), inPolicy("mode: enforce"), inPolicy(`mode: "off"`),
	"version: 1\npolicies: {p: {mode: off}}\n",
	inPolicy("candidate: {limit: 2/s}"), inPolicy("candidate: {limits: [{rate: 2/s}, {algorithm: concurrency, permits: 3}]}"),
	inPolicy("tiers: {by: request.method, gold: {limit: 3/s, burst: 4}}"),
	inPolicy("keys: {acme: {limit: 3/s}, '': {limit: 1/s}}"),
	inPolicy("queue: {limit: 5}"), inPolicy("queue: {limit: 0}"), inPolicy("queue: {limit: 5, order: newest-first, max_wait: 2s}"),
	inPolicy("max_keys: 2147483648, when_full: admit, fail: open, priority: critical"),
	inPolicy("lockout: {refusals: 3, within: 1m30s, for: 30d}"), inPolicy("lockout: {refusals: 3, within: \"${TTL}\", for: 1w2d3h}"),
	inLimit("rate: 1/s"), inLimit("rate: '${RATE}'"), inLimit("rate: 0.5/s"), inLimit("rate: 5/1m30s, burst: 9"), inLimit("name: a b, rate: 1_000/day"),
	inLimit("algorithm: token-bucket, rate: 1/s, burst: 2"), inLimit("algorithm: fixed-window, rate: 1/24h"),
	inLimit("algorithm: sliding-window, rate: 1/s"), inLimit("algorithm: sliding-window, rate: 1/s, segments: 64"),
	inLimit("algorithm: sliding-counter, rate: 1/min"), inLimit("algorithm: concurrency, permits: 1000000000000000"),
	inLimit("algorithm: calendar-window, permits: 5, every: month"),
	inLimit("algorithm: calendar-window, permits: 5, every: month, zone: Europe/Vienna, day: 15, hour: 6, minute: 30"),
	inLimit("algorithm: calendar-window, permits: 5, every: week, weekday: sunday"), inLimit("algorithm: calendar-window, permits: 5, every: week, weekday: 7"),
	inLimit("algorithm: calendar-window, permits: 5, every: year, month: april"), inLimit("algorithm: calendar-window, permits: 5, every: quarter, month: 2"),
	inLimit("algorithm: calendar-window, permits: 5, every: hour, minute: 59"), inLimit("algorithm: calendar-window, permits: 5, every: minute, zone: UTC"),
	inShared("consistency: coherent"), inShared("consistency: leased, hold: 30s, fail: local"), inShared("consistency: optimistic, fail: open"),
	inShared("consistency: local"), inPolicy("consistency: local, fail: open"),
	inStore("redis://h"), inStore("rediss://u:p@h:6379/5"), inStore("unix:///run/redis.sock?db=3"), inStore("valkey://h?addr=i:1&addr=j:2&master_set=m"),
	inStore("'${STORE}'"), inStore("{url: 'redis://h', prefix: 'a:', timeout: 1m, max_in_flight: 1, connections: 8}"),
	inStore("{addresses: 'h:1', tls: true}"), inStore("{addresses: ['h:1', '[::1]:6379'], master: m, username: u, password: 12345, database: 65535}"),
	inStore("{url: '${STORE}', leased: {term: 10ms, max_keys: 1}, optimistic: {interval: 1m, drift: 100%, max_keys: 1000000000}}"),
	inStore("{url: 'redis://h', sentinel_username: u, sentinel_password: p, leased: {}, optimistic: {}}"),
	inCluster("{directory: /d}"), inCluster("{directory: /d, name: a}"), inCluster("{directory: /d, join: false, reserve: 1, ttl: 1h, max_keys: 5}"),
	inCluster("{directory: d, name: a-b, peers: {a-b: 'http://a:1'}, listen: 'http://:1', join: true, requeue: '${YES}'}"),
	inCluster("{directory: d, name: a, peers: {a: 'http://a:1', b: 'http://[::1]:1'}, address: 'a:2', listen_address: ':2', prefix: a/}"),
	inCluster("{directory: d, address: 'a:2', peer_cert_file: c, peer_key_file: k, peer_ca_file: a}"),
	inCluster("{endpoints: 'http://a:1', address: 'a:2'}"), inCluster("{endpoints: ['https://a:1'], address: 'a:2', username: u, password: 5, ca_file: c}"),
	inCluster("{file: /d/limits}"), inCluster("{file: '${YES}', reserve: 1, max_keys: 5}"),
	inCluster("{endpoints: ['https://a:1'], address: 'a:2', cert_file: c, key_file: k, prefix: /, ttl: '${TTL}'}"),
	inDurable("durability: memory"), inDurable("durability: cluster, hold: 5m, fail: open, queue: {limit: 5, order: oldest-first, max_wait: 1h}"),
	inDurable("durability: cluster, max_keys: 5, when_full: deny, consistency: local"), inDurable("preset: metered-api"), inPreset(""), inPreset(", burst: 5"),
	inPreset(", limit: 1/s, burst: 5"), inPreset(", queue: {max_wait: 5s}"), inPreset(", queue: {}"), inPreset(", mode: off"), inPreset(", limits: [{rate: 1/s}]"),
	inRule("limits: p"), inRule("limits: [p]"), inRule("limits: {policy: p, key: client.net, cost: 3}"), inRule("limits: [p, {policy: p}]"),
	inRule("limits: p, final: true"), inRule("exempt: '${YES}'"), inRule("final: false"), inRule("exempt: false, limits: p"),
	inRule("deny: true"), inRule("deny: true, mode: shadow"), inRule("deny: '${YES}', mode: 'off'"), inRule("deny: false, limits: p, mode: enforce"),
	inRule("deny: true, exempt: false, final: false, charge: before"), inRule("limits: p, mode: enforce"),
	inRule("when: true"), inRule(`when: 'request.path.startsWith("/v2")'`),
	inMatch("method: GET"), inMatch("method: [GET, POST]"), inMatch(`host: [a.example, "*.b.example"]`), inMatch("path: '/x/{id}'"),
	inMatch(`header: {X-A: a, X-B: "b*", X-C: null, X-D: "*", X-E: }`), inMatch(`client: ["::1", 10.0.0.0/8]`),
	inMatch(`route: "GET /"`), inMatch("protocol: [http, grpc]"), inMatch(""),
}

var structuralMistakes = []string{
	"version: 2\n", "policies: {}\n", "[]\n", "text\n", "version: '1'\n", "version: 1\nrule: []\n",
	"version: 1\npolicies: []\n", "version: 1\nrules: {}\n", "version: 1\npolicies: {a/b: {limit: 1/s}}\n",
	"version: 1\npolicies: {p: }\n", "version: 1\npolicies: {p: {}}\n", "version: 1\npolicies: {p: {mode: shadow}}\n",
	"version: 1\npolicies: {p: {burst: 4}}\n", inPolicy("limits: [{rate: 1/s}]"), inPolicy("burst: 0"), inPolicy("burst: '5'"),
	inPolicy("burst: 1.5"), inPolicy("burst: 1000000000000001"), inPolicy("burst: many"), inPolicy("bursts: 1"), inPolicy("key: {}"),
	inPolicy("key: []"), inPolicy("key: [[client.ip]]"), inPolicy("key: "), inPolicy("cost: []"), inPolicy("cost: 1000000000000001"),
	inPolicy("mode: on"), inPolicy("mode: true"), inPolicy("candidate: {}"), inPolicy("candidate: 1/s"), inPolicy("candidate: {limit: 1/s, key: client.ip}"),
	inPolicy("tiers: {gold: {limit: 1/s}}"), inPolicy("tiers: {by: request.method}"), inPolicy("tiers: {by: {limit: 1/s}, a: {limit: 1/s}}"),
	inPolicy("tiers: {by: request.method, gold: 1/s}"), inPolicy("keys: {a: 1/s}"), inPolicy("keys: []"), inPolicy("parent: [a]"),
	inPolicy("queue: 5"), inPolicy("queue: {}"), inPolicy("queue: {limit: -1}"), inPolicy("queue: {limit: 1, order: fifo}"),
	inPolicy("queue: {limit: 1, max_wait: 2}"), inPolicy("queue: {limit: 1, max_wait: soon}"), inPolicy("max_keys: 0"), inPolicy("max_keys: 2147483649"),
	inPolicy("consistency: shared"), inPolicy("consistency: "), inPolicy("consistency: [leased]"), inShared("consistency: coherent, hold: 1"),
	inShared("consistency: coherent, fail: safe"), inStore(""), inStore("5"), inStore("redis"), inStore("http://h"), inStore("[redis://h]"),
	inStore("{}"), inStore("{url: 'redis://h', addresses: 'h:1'}"), inStore("{url: http://h}"), inStore("{url: }"), inStore("{addresses: []}"),
	inStore("{addresses: h}"), inStore("{addresses: [h]}"), inStore("{url: 'redis://h', master: m}"), inStore("{url: 'redis://h', tls: true}"),
	inStore("{addresses: 'h:1', tls: maybe}"), inStore("{url: 'redis://h', host: h}"), inStore("{url: 'redis://h', database: -1}"),
	inStore("{url: 'redis://h', database: 65536}"), inStore("{url: 'redis://h', prefix: ''}"), inStore("{url: 'redis://h', prefix: '{}'}"),
	inStore("{url: 'redis://h', timeout: 5}"), inStore("{url: 'redis://h', max_in_flight: 0}"), inStore("{url: 'redis://h', connections: 3}"),
	inStore("{url: 'redis://h', password: []}"), inStore("{url: 'redis://h', password: }"), inStore("{url: 'redis://h', username: 5}"),
	inStore("{url: 'redis://h', leased: {terms: 1s}}"), inStore("{url: 'redis://h', leased: 1s}"), inStore("{url: 'redis://h', leased: {max_keys: 0}}"),
	inStore("{url: 'redis://h', optimistic: {drift: 10}}"), inStore("{url: 'redis://h', optimistic: {drift: many}}"), inStore("{url: 'redis://h', optimistic: {interval: 3}}"),
	inCluster(""), inCluster("/d"), inCluster("{}"), inCluster("{directory: 5}"), inCluster("{directory: /d, endpoints: 'http://a:1', address: 'a:2'}"),
	inCluster("{endpoints: 'http://a:1'}"), inCluster("{endpoints: [], address: 'a:2'}"), inCluster("{endpoints: a, address: 'a:2'}"),
	inCluster("{endpoints: 'http://a:1', address: a}"), inCluster("{endpoints: 'http://a:1', address: 'a:2', name: a}"),
	inCluster("{endpoints: 'http://a:1', address: 'a:2', username: u}"), inCluster("{endpoints: 'http://a:1', address: 'a:2', password: p}"),
	inCluster("{endpoints: 'https://a:1', address: 'a:2', cert_file: c}"), inCluster("{endpoints: 'https://a:1', address: 'a:2', key_file: c}"),
	inCluster("{directory: /d, ca_file: c}"), inCluster("{directory: /d, username: u, password: p}"), inCluster("{directory: /d, peers: {a: 'http://a:1'}}"),
	inCluster("{directory: /d, peers: {}, name: a}"), inCluster("{directory: /d, peers: {a: 'a:1'}, name: a}"), inCluster("{directory: /d, peers: {'a=b': 'http://a:1'}, name: a}"),
	inCluster("{directory: /d, peers: {a: 'http://a:1', b: 'http://b:1'}, name: a}"), inCluster("{directory: /d, listen: 'http://a:1'}"), inCluster("{directory: /d, join: true}"),
	inCluster("{directory: /d, listen_address: ':1'}"), inCluster("{directory: /d, address: ':1'}"), inCluster("{directory: /d, peer_cert_file: c, peer_key_file: k}"),
	inCluster("{directory: /d, address: 'a:1', peer_cert_file: c}"), inCluster("{directory: /d, address: 'a:1', peer_ca_file: c}"), inCluster("{directory: /d, prefix: a}"),
	inCluster("{directory: /d, ttl: 5}"), inCluster("{directory: /d, reserve: 0}"), inCluster("{directory: /d, max_keys: 0}"), inCluster("{directory: /d, requeue: 1}"),
	inCluster("{file: ''}"), inCluster("{file: 5}"), inCluster("{file: f, directory: /d}"), inCluster("{file: f, endpoints: 'http://a:1', address: 'a:2'}"),
	inCluster("{file: f, prefix: a/}"), inCluster("{file: f, ttl: 1s}"), inCluster("{file: f, requeue: true}"), inCluster("{file: f, address: 'a:2'}"),
	inCluster("{file: f, name: a, peers: {a: 'http://a:1'}}"), inCluster("{file: f, username: u, password: p}"), inCluster("{file: f, join: false}"),
	inCluster("{directory: /d, tls: true}"), inDurable("durability: disk"), inDurable("durability: "), inPreset(", burst: 0"), inPreset(", burst: 5, limits: [{rate: 1/s}]"),
	inPreset("s"), inDurable("durability: cluster, queue: {}"), "version: 1\npolicies: {p: {preset: none}}\n",
	inPolicy("when_full: drop"), inPolicy("fail: safe"), inPolicy("priority: 5"), inPolicy("lockout: {refusals: 1, within: 1m}"),
	inPolicy("lockout: {refusals: 0, within: 1m, for: 1m}"), inPolicy("lockout: {refusals: 65536, within: 1m, for: 1m}"),
	"version: 1\npolicies: {p: {limits: []}}\n", "version: 1\npolicies: {p: {limits: {rate: 1/s}}}\n", "version: 1\npolicies: {p: {limit: 5}}\n",
	"version: 1\npolicies: {p: {limits: [{rate: 1/s}, {rate: 1/s}, {rate: 1/s}, {rate: 1/s}, {rate: 1/s}, {rate: 1/s}, {rate: 1/s}, {rate: 1/s}, {rate: 1/s}]}}\n",
	inLimit(""), inLimit("rate: fast"), inLimit("rate: 100"), inLimit("name: a/b, rate: 1/s"), inLimit("algorithm: gcra, rate: 1/s"),
	inLimit("algorithm: fixed-window, rate: 1/s, burst: 2"), inLimit("algorithm: fixed-window"), inLimit("rate: 1/s, segments: 4"),
	inLimit("algorithm: sliding-window, rate: 1/s, segments: 65"), inLimit("algorithm: concurrency, rate: 1/s"), inLimit("algorithm: concurrency"),
	inLimit("algorithm: concurrency, permits: 0"), inLimit("rate: 1/s, permits: 3"), inLimit("rate: 1/s, zone: UTC"),
	inLimit("algorithm: calendar-window, every: month"), inLimit("algorithm: calendar-window, permits: 5"), inLimit("algorithm: calendar-window, permits: 5, every: decade"),
	inLimit("algorithm: calendar-window, permits: 5, every: month, day: 32"), inLimit("algorithm: calendar-window, permits: 5, every: month, rate: 1/s"),
	inLimit("algorithm: calendar-window, permits: 5, every: month, weekday: 1"), inLimit("algorithm: calendar-window, permits: 5, every: week, weekday: sun"),
	inLimit("algorithm: calendar-window, permits: 5, every: day, day: 3"), inLimit("algorithm: calendar-window, permits: 5, every: month, month: 3"),
	inLimit("algorithm: calendar-window, permits: 5, every: year, month: 13"), inLimit("algorithm: calendar-window, permits: 5, every: day, hour: 24"),
	inLimit("algorithm: calendar-window, permits: 5, every: hour, hour: 3"), inLimit("algorithm: calendar-window, permits: 5, every: minute, minute: 3"),
	inLimit("algorithm: calendar-window, permits: 5, every: month, zone: 1"),
	"version: 1\nrules: [{}]\n", "version: 1\nrules: [r]\n", inRule("limits: []"), inRule("limits: [[p]]"), inRule("limits: {key: client.ip}"),
	inRule("limits: {policy: p, burst: 1}"), inRule("exempt: yes"), inRule("exempt: 1"), inRule("exempt: true, limits: p"),
	inRule("deny: 1"), inRule("deny: true, limits: p"), inRule("deny: true, exempt: true"), inRule("deny: true, final: true"),
	inRule("deny: true, charge: afterwards"), inRule("mode: shadow, limits: p"), inRule("deny: false, mode: 'off'"), inRule("deny: true, mode: on"),
	inRule("final: 'true'"),
	inRule("when: []"), inRule("match: GET"), inRule("policy: p"), inMatch("method: []"), inMatch("method: get"), inMatch("method: {a: b}"),
	inMatch("path: x"), inMatch("path: [/a, b]"), inMatch("path: /a/*"), inMatch("path: [/a, '/b?c']"), inMatch("header: [a]"), inMatch("header: {}"), inMatch("header: {X-A: [a]}"), inMatch("header: {X-A: 1}"),
	inMatch("client: 1"), inMatch("host: 1"), inMatch("protocol: HTTP"), inMatch("query: x"),
}

func TestSchemaAndDecoderAgree(t *testing.T) {
	s := compiledSchema(t, "")
	for _, text := range validFiles {
		if _, err := Parse("weir.yaml", []byte(text), Options{Env: testEnv}); err != nil {
			t.Errorf("the decoder refuses\n%s%v", text, err)
		}
		if err := s.Validate(plainYAML(t, text)); err != nil {
			t.Errorf("the schema refuses\n%s%v", text, err)
		}
	}
	for _, text := range structuralMistakes {
		if _, err := Parse("weir.yaml", []byte(text), Options{Env: testEnv}); err == nil {
			t.Errorf("the decoder accepts\n%s", text)
		}
		if err := s.Validate(plainYAML(t, text)); err == nil {
			t.Errorf("the schema accepts\n%s", text)
		}
	}
}
