package config_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/policy"
)

const durablePolicy = "\npolicies:\n  p: {limit: 1/s, durability: cluster}\nrules: [{name: r, limits: p}]\n"

func clustered(cluster string) string { return "version: 1\ncluster: " + cluster + durablePolicy }

func noEnv(string) (string, bool) { return "", false }

func TestCluster(t *testing.T) {
	name := filepath.Join(t.TempDir(), "weir.yaml")
	at := func(path string) string { return filepath.Join(filepath.Dir(name), path) }
	f, err := config.Parse(name, []byte(clustered(`
  directory: data
  name: b
  peers: {a: "http://10.0.0.1:7090", b: "https://b.example:7090", "${B}": "http://[::1]:1"}
  listen: http://:7090
  join: true
  address: b.example:7091
  listen_address: ":7091"
  peer_ca_file: /etc/ca.pem
  peer_cert_file: tls/../node.pem
  peer_key_file: node-key.pem
  prefix: shop/
  ttl: 3s
  reserve: 1_000
  max_keys: 5
  requeue: true`)), config.Options{Env: noEnv})
	if err != nil {
		t.Fatal(err)
	}
	c := f.Cluster
	if c.Directory != at("data") || c.Name != "b" || len(c.Peers) != 3 || c.Peers["b"] != "https://b.example:7090" || c.Listen != "http://:7090" ||
		!c.Join || c.Address != "b.example:7091" || c.ListenAddress != ":7091" || c.PeerCAFile != "/etc/ca.pem" ||
		c.PeerCertFile != at("node.pem") || c.PeerKeyFile != at("node-key.pem") || c.Prefix != "shop/" || c.TTL != 3*time.Second ||
		c.Reserve != 1000 || c.MaxKeys != 5 || !c.Requeue || c.Source != name+":2:1" {
		t.Errorf("%#v, %+v", c, *c)
	}
	p := f.Set.Policies[0]
	if p.Durability != policy.DurabilityCluster || p.Consistency != policy.ConsistencyLocal {
		t.Errorf("%+v", p)
	}
	f, err = config.Parse("weir.yaml", []byte(clustered(`{endpoints: ["http://a:1", "${B}"], address: "${C}", username: u, password: 12345}`)),
		config.Options{Env: func(name string) (string, bool) {
			return map[string]string{"B": "https://xyzzy:2", "C": "d:3"}[name], true
		}})
	if err != nil {
		t.Fatal(err)
	}
	if c := f.Cluster; !slices.Equal(c.Endpoints, []string{"http://a:1", "https://xyzzy:2"}) || c.Address != "d:3" || c.Username != "u" ||
		c.Password != "12345" || c.String() != "http://a:1, ${B}" || fmt.Sprintf("%#v", c) != `config.Cluster("http://a:1, ${B}")` {
		t.Errorf("%v, %+v", c, *c)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v %+v %#v %s", f.Cluster, f.Cluster, f.Cluster, f.Cluster)
	if f.Explain(&b); strings.Contains(b.String(), "xyzzy") || strings.Contains(b.String(), "12345") || strings.Contains(b.String(), "d:3") {
		t.Error(b.String())
	}
	for _, o := range []config.Options{{HasCluster: true}, {HasCluster: true, HasStore: true}} {
		if f, err := config.Parse("f", []byte("version: 1"+durablePolicy), o); err != nil || f.Cluster != nil {
			t.Error(err)
		}
	}
}

// TestClusterIsTheSame reports whether anything of it has changed, wherever it stands.
func TestClusterIsTheSame(t *testing.T) {
	parse := func(text string) *config.File {
		f, err := config.Parse("f", []byte(text), config.Options{Env: noEnv})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	const one = "{directory: /d, name: a, peers: {a: 'http://a:1'}}"
	first := parse(clustered(one)).Cluster
	if !first.Same(parse("# moved\n" + clustered(one)).Cluster) {
		t.Error("it has moved only")
	}
	for _, other := range []string{
		"{directory: /e, name: a, peers: {a: 'http://a:1'}}", "{directory: /d, name: a, peers: {a: 'http://a:2'}}",
		"{directory: /d, name: a, peers: {a: 'http://a:1'}, requeue: true}", "{endpoints: 'http://a:1', address: 'a:2'}",
	} {
		if first.Same(parse(clustered(other)).Cluster) {
			t.Error(other)
		}
	}
	var none *config.Cluster
	if first.Same(none) || none.Same(first) || !none.Same(nil) {
		t.Error("none is the same as some")
	}
	f := parse(clustered(one))
	if err := f.ClusterErrors("cannot be changed", "restart"); err.Error() != "weir: f cannot be used: 1 mistake\nf:2:1: cluster: cannot be changed; restart" {
		t.Error(err)
	}
}

// TestClusterMistakes have their place, and say what to do.
func TestClusterMistakes(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"version: 1" + durablePolicy, `f:3:31: policies.p.durability: "cluster": needs a cluster, and the file has none`},
		{"version: 1\npolicies:\n  p: {preset: metered-api}\n", `f:3:15: policies.p.preset: "metered-api": needs a cluster`},
		{clustered("{}"), "f:2:1: cluster.directory: is missing: a cluster needs directory"},
		{clustered("/var/lib/weir"), "must be a mapping"},
		{clustered("{dir: /d}"), `unknown key: no "dir" is accepted in a cluster; did you mean "directory"?`},
		{clustered("{directory: /d, endpoints: 'http://a:1', address: 'a:2'}"), "endpoints stand beside directory"},
		{clustered("{directory: /d, file: f}"), `f:2:26: cluster.file: "file": file stands beside directory or endpoints`},
		{clustered("{endpoints: 'http://a:1', file: f}"), "file stands beside directory or endpoints"},
		{clustered("{file: ''}"), "must be the path of a file"},
		{clustered("{file: f, ttl: 2s}"), "ttl belongs to directory or endpoints: a file is of one process alone"},
		{clustered("{file: f, address: 'a:1'}"), "address belongs to directory or endpoints"},
		{clustered("{directory: ''}"), "must be the path of a directory"},
		{clustered("{directory: 5}"), "is a number for YAML"},
		{clustered("{directory: /d, username: u, password: p}"), "f:2:26: cluster.username: username belongs to endpoints"},
		{clustered("{directory: /d, ca_file: c}"), "ca_file belongs to endpoints"},
		{clustered("{endpoints: 'http://a:1', address: 'a:2', name: n}"), "name belongs to directory"},
		{clustered("{endpoints: 'http://a:1', address: 'a:2', peers: {n: 'http://n:1'}, name: n}"), "peers belongs to directory"},
		{clustered("{endpoints: 'http://a:1'}"), "cluster.address: is missing"},
		{clustered("{endpoints: []}"), "the list is empty"},
		{clustered("{endpoints: 'a:1', address: 'a:2'}"), "must be a URL of a host and a port, over http or https; write http://a:1"},
		{clustered("{endpoints: 'http://u:hunter2@a:1', address: 'a:2'}"), `"http://u:xxxxx@a:1": must be a URL of a host and a port, over http or https; remove the user from it`},
		{clustered("{endpoints: 'http://a:1', address: 'a:2', username: u}"), "cluster.password: is missing: username needs it"},
		{clustered("{endpoints: 'http://a:1', address: 'a:2', password: hunter2}"), "cluster.username: is missing: password needs it"},
		{clustered("{endpoints: 'https://a:1', address: 'a:2', cert_file: c}"), "cluster.key_file: is missing"},
		{clustered("{endpoints: 'https://a:1', address: 'a:2', key_file: c}"), "cluster.cert_file: is missing"},
		{clustered("{endpoints: 'http://a:1', address: 'a:2', ca_file: c}"), "are reached over http, and files for TLS are given"},
		{clustered("{directory: /d, peers: {a: 'http://a:1'}}"), "cluster.name: is missing: with peers, a node needs"},
		{clustered("{directory: /d, peers: {abc: 'http://a:1'}, name: abd}"), `is none of peers: it must be the name that this node has among them; did you mean "abc"?`},
		{clustered("{directory: /d, name: a, peers: {a: 'http://a:1', b: 'http://b:1'}}"), "cluster.address: is missing: with other nodes"},
		{clustered("{directory: /d, name: a, peers: {a: 'http://a:1', b: 'http://a:1'}, address: 'a:2'}"), "is that of a as well"},
		{clustered("{directory: /d, name: a, peers: {a: 'http://a:1/x'}}"), "must be a URL of a host and a port"},
		{clustered("{directory: /d, name: a, peers: {}}"), "must have 1 to 9 nodes"},
		{clustered("{directory: /d, name: a, peers: {a: b, c: b, d: b, e: b, f: b, g: b, h: b, i: b, j: b, k: b}}"), "must have 1 to 9 nodes"},
		{clustered("{directory: /d, name: 'a=b', peers: {a: 'http://a:1'}}"), "must be a name of 1 to 64 printable ASCII characters without = and ,"},
		{clustered("{directory: /d, name: a, peers: {a: 'http://a:1', b: 'http://b:1'}, address: '0.0.0.0:2'}"), "must be an address by which the other nodes reach this one"},
		{clustered("{directory: /d, name: a, peers: {a: 'http://a:1', b: 'http://b:1'}, address: '[::]:2'}"), "and this one as listen_address"},
		{clustered("{directory: /d, name: a, peers: {a: 'http://a:1', b: 'http://b:1'}, address: 'a:1'}"), "is that of its etcd server in peers as well"},
		{clustered("{directory: /d, name: a, peers: {a: 'https://a:1', b: 'https://b:1'}, address: 'a:2'}"), "cluster.peer_ca_file: is missing: peers are reached over https"},
		{clustered("{directory: /d, listen: 'http://:1'}"), "listen belongs to peers"},
		{clustered("{directory: /d, join: true}"), "join belongs to peers"},
		{clustered("{directory: /d, address: 'http://a:1'}"), "must be host:port; write a:1"},
		{clustered("{directory: /d, address: ':1'}"), "must be host:port"},
		{clustered("{directory: /d, listen_address: ':1'}"), "cluster.address: is missing: listen_address needs it"},
		{clustered("{directory: /d, peer_cert_file: c, peer_key_file: k}"), "peer_cert_file belongs to address"},
		{clustered("{directory: /d, address: 'a:1', peer_ca_file: c}"), "cluster.peer_cert_file: is missing"},
		{clustered("{directory: /d, prefix: shop}"), `must be a text of 1 to 256 bytes that ends in /; write shop/`},
		{clustered("{directory: /d, ttl: 1500ms}"), "must be whole seconds"},
		{clustered("{directory: /d, ttl: 500ms}"), "is too short"},
		{clustered("{directory: /d, reserve: 0}"), "is too small"},
		{clustered("{directory: /d, max_keys: 1000000001}"), "is too large"},
		{clustered("{directory: /d, requeue: maybe}"), "must be true or false"},
	} {
		_, err := config.Parse("f", []byte(c.text), config.Options{Env: noEnv})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		}
	}
}

// TestOneClusterMistake: a peer whose URL is wrong is a node all the same.
func TestOneClusterMistake(t *testing.T) {
	_, err := config.Parse("f", []byte(clustered("{directory: /d, name: a, peers: {a: 'a:1', b: b}, address: 'a:2'}")), config.Options{Env: noEnv})
	var wrong *yamlread.Errors
	if !errors.As(err, &wrong) || len(wrong.Mistakes) != 2 {
		t.Error(err)
	}
}

// TestDurabilityMistakes are what a policy that the cluster owns cannot have.
func TestDurabilityMistakes(t *testing.T) {
	in := func(s string) string {
		return "version: 1\ncluster: {directory: /d}\nstore: redis://h\npolicies:\n  p: {limit: 1/s, " + s + "}\n  q: {limit: 1/s, durability: cluster}\n  r: {limit: 1/s, consistency: leased}\n"
	}
	for _, c := range []struct{ text, want string }{
		{in("durability: durable"), `unknown: must be memory or cluster; did you mean "cluster"?`},
		{in("durability: cluster, consistency: coherent"), "policies.p.durability: \"cluster\": cannot be cluster beside consistency coherent"},
		{in("durability: cluster, fail: local"), "must be closed or open: without the owner"},
		{in("durability: cluster, when_full: admit"), "must be deny: the keys of a policy of durability cluster"},
		{in("durability: cluster, queue: {limit: 3, order: newest-first}"), `policies.p.queue.order: "newest-first": must be oldest-first`},
		{in("durability: cluster, queue: {order: oldest-first}"), "policies.p.queue.limit: is missing"},
		{in("durability: cluster, hold: 25h"), "is too long"},
		{in("durability: memory, hold: 5m"), "belongs to shared policies"},
		{in("durability: cluster, keys: {a: {limit: 7/87839h59m59.999999999s}}"), "cannot be counted by the store"},
		{"version: 1\ncluster: {directory: /d}\npolicies:\n  p: {limits: [{algorithm: fixed-window, rate: 1/1500ns}], durability: cluster}\n", "write a period of whole microseconds, or durability: memory"},
		{in("preset: metered"), `unknown: must be metered-api or metered-api-from-env; did you mean "metered-api"?`},
		{in("preset: metered-api, limits: [{rate: 1/s}]"), "limit and limits stand side by side"},
		{"version: 1\ncluster: {directory: /d}\npolicies:\n  p: {preset: metered-api, limits: [{rate: 1/s}], burst: 5}\n", "burst belongs to limit: beside limits there must be none"},
		{"version: 1\ncluster: {directory: /d}\npolicies:\n  p: {preset: metered-api, burst: 0}\n", "is too small"},
		{"version: 1\ncluster: {directory: /d}\npolicies:\n  p: {preset: metered-api, tiers: {by: request.method, GET: {limits: [{algorithm: fixed-window, rate: 1/s}]}}}\n", "algorithms must be the same"},
	} {
		_, err := config.Parse("f", []byte(c.text), config.Options{Env: noEnv})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		}
	}
	f, err := config.Parse("f", []byte("version: 1\ncluster: {directory: /d}\npolicies: {p: {limit: 1/s}}\n"), config.Options{Env: noEnv})
	if err != nil || len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0].String(), "f:2:1: cluster: \"cluster\": no policy has durability cluster") {
		t.Errorf("%v, %v", err, f.Warnings)
	}
}

// TestPreset: a policy has what its preset has, unless it says otherwise itself.
func TestPreset(t *testing.T) {
	bucket := func(permits, burst int64) weir.Limit { return weir.TokenBucket(weir.PerMinute(permits), burst) }
	metered := func(change func(p *policy.Policy)) policy.Policy {
		p := policy.Policy{QueueLimit: 10_000, MaxWait: 30 * time.Second, Durability: policy.DurabilityCluster}
		p.Limits = []policy.Limit{{Limit: bucket(8, 5)}}
		if change != nil {
			change(&p)
		}
		return p
	}
	for _, c := range []struct {
		says, burst, perMinute string
		want                   policy.Policy
		warnings               []string
	}{
		{"", "", "", metered(nil), nil},
		{"", "50", "60", metered(func(p *policy.Policy) { p.Limits[0].Limit = bucket(60, 50) }), nil},
		{", burst: 7", "50", "", metered(func(p *policy.Policy) { p.Limits[0].Limit = limits.WithPermits(p.Limits[0].Limit, 7) }), nil},
		{"", "many", "", metered(nil), []string{"f:4:15: policies.p.preset: \"metered-api-from-env\": the variable GEMINI_BURST of the environment cannot be used: " +
			"must be a whole number from 1 to 1000000; the default 5 is used; correct it, or unset it"}},
		{"", "many", "fast", metered(nil), []string{"GEMINI_BURST", "GEMINI_TOKENS_PER_MINUTE"}},
		{", limit: 3/s", "50", "fast", metered(func(p *policy.Policy) { p.Limits[0].Limit = weir.TokenBucket(weir.PerSecond(3), 0) }), nil},
		{", limits: [{algorithm: concurrency, permits: 4}]", "50", "", metered(func(p *policy.Policy) {
			p.Limits[0].Limit = weir.AtOnce(4)
		}), nil},
		{", queue: {limit: 5}", "", "", metered(func(p *policy.Policy) { p.QueueLimit = 5 }), nil},
		{", queue: {max_wait: 5s}", "", "", metered(func(p *policy.Policy) { p.MaxWait = 5 * time.Second }), nil},
		{", queue: {limit: 0}", "", "", metered(func(p *policy.Policy) { p.QueueLimit, p.MaxWait = 0, 0 }), nil},
		{", durability: memory", "", "", metered(func(p *policy.Policy) { p.Durability = policy.DurabilityMemory }), nil},
		{", consistency: coherent", "", "", metered(func(p *policy.Policy) {
			p.Durability, p.Consistency, p.QueueLimit, p.MaxWait = policy.DurabilityMemory, policy.ConsistencyCoherent, 0, 0
		}), nil},
		{", fail: open, hold: 5s", "", "", metered(func(p *policy.Policy) { p.Fail, p.Hold = policy.FailOpen, 5*time.Second }), nil},
	} {
		env := func(name string) (string, bool) {
			v := map[string]string{"GEMINI_BURST": c.burst, "GEMINI_TOKENS_PER_MINUTE": c.perMinute}[name]
			return v, v != ""
		}
		text := "version: 1\npolicies:\n  q: {limit: 1/s}\n  p: {preset: metered-api-from-env" + c.says + "}\n"
		f, err := config.Parse("f", []byte(text), config.Options{Env: env, HasStore: true, HasCluster: true})
		if err != nil {
			t.Errorf("%s: %v", c.says, err)
			continue
		}
		got := f.Set.Policies[1]
		if fmt.Sprint(got.Limits) != fmt.Sprint(c.want.Limits) || got.QueueLimit != c.want.QueueLimit || got.MaxWait != c.want.MaxWait ||
			got.Durability != c.want.Durability || got.Consistency != c.want.Consistency || got.Fail != c.want.Fail || got.Hold != c.want.Hold {
			t.Errorf("%s:\n%+v, want\n%+v", c.says, got, c.want)
		}
		if len(f.Warnings) != len(c.warnings) {
			t.Errorf("%s: %v", c.says, f.Warnings)
			continue
		}
		for i, w := range f.Warnings {
			if !strings.Contains(w.String(), c.warnings[i]) || strings.Contains(w.String(), "many") || strings.Contains(w.String(), "fast") {
				t.Errorf("%s: %v", c.says, w)
			}
		}
		usable(t, f)
		var b strings.Builder
		if f.Explain(&b); c.burst == "50" && c.perMinute == "60" && (!strings.Contains(b.String(), "${GEMINI_TOKENS_PER_MINUTE}/min, burst") ||
			!strings.Contains(b.String(), "${GEMINI_BURST}") || strings.Contains(b.String(), "60/min")) {
			t.Error(b.String())
		}
	}
}

// TestPresetReadsNoEnvironment unless its name says so.
func TestPresetReadsNoEnvironment(t *testing.T) {
	for preset, want := range map[string]string{"metered-api": "8/min, burst 5", "metered-api-from-env": "60/min, burst 50"} {
		env := func(name string) (string, bool) {
			v, ok := map[string]string{"GEMINI_BURST": "50", "GEMINI_TOKENS_PER_MINUTE": "60"}[name]
			return v, ok
		}
		f, err := config.Parse("f", []byte("version: 1\npolicies:\n  p: {preset: "+preset+"}\n"), config.Options{Env: env, HasCluster: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Set.Policies[0].Limits[0].String(); got != want || len(f.Warnings) != 0 {
			t.Errorf("%s: %s, want %s; %v", preset, got, want, f.Warnings)
		}
	}
}

// TestExplainCluster compares the explanations of three files.
func TestExplainCluster(t *testing.T) {
	golden(t, "testdata/cluster.txt", explained(t, "testdata/cluster.yaml")+"\n----\n"+explained(t, "testdata/etcd.yaml"))
}
