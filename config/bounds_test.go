package config_test

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/config"
)

// TestBounds says of each limit that is shared by how much it can be exceeded and how much of it can stay unused.
func TestBounds(t *testing.T) {
	const text = `version: 1
store: {url: redis://h, leased: {term: 2s}, optimistic: {drift: 20%}}
policies:
  own: {limit: 1/s}
  off: {limit: 1/s, consistency: coherent, mode: off}
  exact: {limit: 100/s, consistency: coherent, fail: local}
  blocks: {limit: 1000/s, burst: 10000, consistency: leased, fail: open}
  few: {limit: 10/s, consistency: leased}
  window: {limits: [{name: w, algorithm: fixed-window, rate: 1600/min}], consistency: leased}
  ahead: {limit: 100/s, consistency: optimistic, tiers: {by: request.method, GET: {limit: 1000/s}}, keys: {acme: {limit: 5/s}}}
  sliding: {limits: [{algorithm: sliding-window, rate: 100/min}], consistency: optimistic}
  out: {limits: [{algorithm: concurrency, permits: 5}], consistency: coherent, hold: 5m}
  hidden: {limit: "${RATE}", consistency: leased}
  unseen: {limit: "${RATE}", consistency: optimistic}
`
	f, err := config.Parse("f", []byte(text), config.Options{Env: func(string) (string, bool) { return "9081/s", true }})
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, b := range f.Bounds() {
		got.WriteString(b.String() + "\n")
		if strings.Contains(b.String(), "9081") || b.Policy == "hidden" && (b.AtOnce != 0 || b.Unused != 0) {
			t.Errorf("%+v", b)
		}
	}
	golden(t, "testdata/bounds.txt", got.String())
}

// TestDurableBounds says of each limit that the cluster owns what a crash burns, and does not show what came from the environment.
func TestDurableBounds(t *testing.T) {
	for _, c := range []struct{ cluster, policy, want string }{
		{"", "{limit: 1000/s}", "p/1s (1000/s, burst 1000), durable: exact, one round trip to the owner for each request; " +
			"a crash of the owner burns at most 99 permits of each key; without the owner: all are refused"},
		{"", "{limit: 8/min, burst: 5, fail: open}", "burns nothing; without the owner: all are allowed"},
		{"", "{limits: [{algorithm: calendar-window, permits: 1_000_000, every: month}]}", "burns at most 99999 permits"},
		{", reserve: 1", "{limit: 1000/s}", "burns nothing;"},
		{", reserve: 3", "{limit: 1000/s}", "burns at most 2 permits"},
		{", reserve: 300", "{limit: 8/min, burst: 5}", "burns at most 5 permits"},
		{"", "{limits: [{algorithm: concurrency, permits: 50}], hold: 5s}", "and one when it ends; what a process that died had taken comes back within 5s; " +
			"without the owner"},
		{"", `{limit: "${RATE}"}`, "burns less than a tenth of the limit of each key;"},
		{", reserve: 30", `{limit: "${RATE}"}`, "burns at most 29 permits"},
		{`, reserve: "${N}"`, "{limit: 1000/s}", "burns what reserve says; the numbers came"},
	} {
		env := map[string]string{"RATE": "9081/s", "N": "9082"}
		f, err := config.Parse("f", []byte("version: 1\ncluster: {directory: d"+c.cluster+"}\npolicies:\n  p: {durability: cluster, "+c.policy[1:]+"\n"),
			config.Options{Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }})
		if err != nil {
			t.Fatal(err)
		}
		b := f.Bounds()
		if len(b) != 1 || !strings.Contains(b[0].String(), c.want) || strings.Contains(b[0].String(), "908") || b[0].Burned == 9081 {
			t.Errorf("%s of %s: %v", c.policy, c.cluster, b)
		}
	}
}

// TestBoundsOfAsManyProcesses as the file says that there are.
func TestBoundsOfAsManyProcesses(t *testing.T) {
	for _, c := range []struct{ replicas, policy, want string }{
		{"5", "{limit: 1000/s, burst: 10000, consistency: leased}", "so with 5 processes 3811 of the limit;"},
		{"1000", "{limit: 1000/s, burst: 10000, consistency: leased}", "so with 1000 processes 10000 of the limit;"},
		{"5", "{limit: 1000/s, consistency: optimistic}", "so with 5 processes by 400,"},
		{"10000", "{limit: 1000000000/s, burst: 1000000000000000, consistency: optimistic}", "so with 10000 processes by 999900000000000000,"},
		{"1", "{limit: 1000/s, consistency: optimistic}", "so with 3 processes by 200,"},
	} {
		f, err := config.Parse("f", []byte("version: 1\nstore: {url: redis://h, replicas: "+c.replicas+"}\npolicies:\n  p: "+c.policy+"\n"), config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Bounds()[0].Text; !strings.Contains(got, c.want) {
			t.Errorf("%s of %s: %s", c.policy, c.replicas, got)
		}
	}
}
