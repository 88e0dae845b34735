package config_test

import (
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/config/yamlread"
)

var update = flag.Bool("update", false, "write the golden files of this package anew")

// golden compares a text with a file, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; if it should, run go test -update\ngot:\n%s\nwant:\n%s", name, got, want)
	}
}

// mistakesOf are those of a file that must have some.
func mistakesOf(t *testing.T, name string, data []byte, o config.Options) []yamlread.Mistake {
	t.Helper()
	f, err := config.Parse(name, data, o)
	var errs *yamlread.Errors
	if f != nil || !errors.As(err, &errs) || len(errs.Mistakes) == 0 {
		t.Fatalf("%v, %v: must be mistakes", f, err)
	}
	return errs.Mistakes
}

func TestThirtyMistakes(t *testing.T) {
	data, err := os.ReadFile("testdata/thirty.yaml")
	if err != nil {
		t.Fatal(err)
	}
	none := func(string) (string, bool) { return "", false }
	lines := strings.Split(string(data), "\n")
	all := mistakesOf(t, "thirty.yaml", data, config.Options{Env: none})
	if len(all) != 30 {
		t.Errorf("%d mistakes", len(all))
	}
	messages := map[string]int{}
	for _, m := range all {
		if m.File != "thirty.yaml" || m.Line < 1 || m.Line > len(lines) || m.Column < 1 || m.Column > len(lines[m.Line-1]) {
			t.Errorf("no place: %v", m)
		}
		if m.Path == "" || m.Message == "" || m.Fix == "" {
			t.Errorf("something is missing: %+v", m)
		}
		if before := messages[m.Path+m.Message]; before > 0 {
			t.Errorf("told in line %d already: %v", before, m)
		}
		messages[m.Path+m.Message] = m.Line
	}
	_, err = config.Parse("thirty.yaml", data, config.Options{Env: none})
	golden(t, "testdata/thirty.txt", err.Error()+"\n")
}

func TestMistakes(t *testing.T) {
	policy := func(s string) string { return "version: 1\npolicies:\n  p:\n    limit: 1/s\n    " + s + "\n" }
	limit := func(s string) string { return "version: 1\npolicies:\n  p: {limits: [{" + s + "}]}\n" }
	of := func(s string) string { return "version: 1\npolicies:\n  p: {" + s + "}\n" }
	rule := func(s string) string {
		return "version: 1\npolicies:\n  p: {limit: 1/s}\nrules:\n  - name: r\n    " + s + "\n"
	}
	stored := func(s string) string {
		return "version: 1\nstore: " + s + "\npolicies:\n  p:\n    limit: 1/s\n    consistency: coherent\n"
	}
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"SECRET": "xyzzy", "EMPTY": ""}[name]
		return v, ok
	}
	for name, c := range map[string]struct{ text, want string }{
		"empty":            {"", `1:1: the file is empty; begin with version: 1`},
		"comment":          {"# nothing\n", `1:1: the file is empty; begin with version: 1`},
		"null":             {"~\n", `1:1: "~": is empty: must be a mapping, the file; write key: value below it, or {key: value}`},
		"byte":             {"version: 1\nx: \xff\n", `2:4: the byte 0xFF is not UTF-8; save the file as UTF-8`},
		"control":          {"a: é\x01\n", `1:5: the control character U+0001 cannot stand in YAML; remove it, or write it as "\x01" in double quotes`},
		"tab":              {"policies:\n\tp: {}\n", `2:1: is not YAML: a tab cannot indent in YAML; indent with spaces`},
		"bracket":          {"policies: {p: {}\nrules: []\n", `2:1: is not YAML: did not find expected ',' or '}' while parsing a flow mapping that begins in line 1; see the indentation, quotes and brackets here and in the line above`},
		"colon":            {"version: 1: 2\n", `1:11: is not YAML: mapping values are not allowed in this context; see the indentation here and in the line above, or put a value that has a colon in quotes`},
		"braces":           {"version: 1\npolicies: {p: {limit: ${R}}}\n", `2:24: is not YAML: did not find expected ',' or '}' while parsing a flow mapping; put a value that has brackets or braces in quotes, such as 'request.headers["x-user"]', as it stands within others`},
		"quotes":           {"version: 1\nrules: [{name: a, when: request.headers[\"x\"]}]\n", `2:40: is not YAML: did not find expected ',' or '}' while parsing a flow mapping; put a value that has brackets or braces in quotes, such as 'request.headers["x-user"]', as it stands within others`},
		"anchor":           {"version: *v\n", `1:10: is not YAML: unknown anchor 'v' referenced; put the value in quotes if it is no alias, or define the anchor with & before`},
		"star":             {"rules: [{match: {header: {X-Api-Key: *}}}]\n", `1:39: is not YAML: did not find expected alphabetic or numeric character while scanning an alias; put the value in quotes: "*"`},
		"documents":        {"version: 1\n---\nversion: 1\n", `2:1: begins a second document: a file has one only; remove the line ---`},
		"duplicate":        {"version: 1\nversion: 1\n", `2:1: version: the key "version" stands here twice: first in line 1; remove one of them`},
		"merge":            {"version: 1\npolicies:\n  p: {<<: 5, limit: 1/s}\n", `3:11: policies.p: "5": << must be a mapping, or a list of mappings, that are merged into this one; write <<: *name of an anchor &name`},
		"crlf":             {"version: 1\r\npolicies:\r\n  p:\r\n    limit: no\r\n", `4:12: policies.p.limit: "no": must be a rate, which is permits/period; write 100/s, 8/min, 1000/24h or 0.5/s, for instance`},
		"bom":              {"\ufeffversion: 3\n", `1:10: version: "3": must be 1, the only version of the format; write version: 1`},
		"rate range":       {policy("candidate: {limit: 2000000000/s}"), `5:24: policies.p.candidate.limit: "2000000000/s": is not a rate: rate of 2000000000 permits per 1s: must be at most 1000000000 permits per second; write 100/s, 8/min, 1000/24h or 0.5/s, for instance`},
		"rate zero":        {policy("candidate: {limit: 0/s}"), `5:24: policies.p.candidate.limit: "0/s": is not a rate: rate of 0 permits per 1s: must be from 1 to 10^15 permits; write deny: true in a rule to refuse all of its requests`},
		"rate number":      {policy("candidate: {limit: 100}"), `5:24: policies.p.candidate.limit: "100": must be a rate, which is permits/period; write 100/s or 100/min, for instance`},
		"rate words":       {policy("candidate: {limit: 10 per second}"), `5:24: policies.p.candidate.limit: "10 per second": must be a rate, which is permits/period; write 10/s`},
		"rate period":      {policy("candidate: {limit: 5/15 minutes}"), `5:24: policies.p.candidate.limit: "5/15 minutes": is not a rate: period: must be a unit (s, min, h, day, ...), a number with a unit (24h), or a duration (1m30s); write 5/15m`},
		"hour":             {policy("lockout: {refusals: 5, within: 15m, for: 1 hour}"), `5:46: policies.p.lockout.for: "1 hour": is not a duration such as 90s, 1h30m or 30d: must be a duration from 1ms to 3660d; write 1h`},
		"burst huge":       {policy("burst: 99999999999999999999"), `5:12: policies.p.burst: "99999999999999999999": is too large: must be a number of permits from 1 to 10^15; write 1000000000000000 or less`},
		"octal":            {policy("burst: 010"), `5:12: policies.p.burst: "010": is not written as a decimal number: must be a number of permits from 1 to 10^15; write 100, for instance`},
		"burst float":      {policy("burst: 1.5"), `5:12: policies.p.burst: "1.5": is not a whole number: must be a number of permits from 1 to 10^15; write 100, for instance`},
		"shadow":           {policy("mode: shadow\n    candidate: {limit: 2/s}"), `6:5: policies.p.candidate: a policy with mode: shadow has no candidate: it is measured itself; remove it, or write mode: enforce`},
		"by":               {policy("tiers: {by: {limit: 1/s}, gold: {limit: 1/s}}"), `5:13: policies.p.tiers.by: by is the expression that chooses the tier: no tier can have this name; choose another name for the tier`},
		"algorithm":        {policy("keys: {a: {limits: [{algorithm: fixed-window, rate: 1/s}]}}"), `5:25: policies.p.keys.a.limits[0]: is a fixed-window, and that of the policy a token-bucket: algorithms must be the same; leave algorithm out`},
		"limit name":       {policy("keys: {a: {limits: [{name: x, rate: 1/s}]}}"), `5:32: policies.p.keys.a.limits[0].name: "x": names must be those of the limits of the policy, in their order; remove the name, as that of the policy has none`},
		"self":             {policy("parent: p"), `5:13: policies.p.parent: "p": is a cycle of parents: p > p; remove one of these parents`},
		"no parent":        {policy("parent: q"), `5:13: policies.p.parent: "q": there is no policy of this name; define it below policies`},
		"variable":         {policy("key: '${1}'"), `5:11: policies.p.key: "${1}": has a ${...} that is not ${NAME} or ${NAME:-default}, with a name of letters, digits and underscores; write $${ for the two characters`},
		"unclosed":         {policy("key: 'client.ip + ${A'"), `5:23: policies.p.key: "client.ip + ${A": has a ${ without a }: a variable of the environment is ${NAME} or ${NAME:-default}; close it, or write $${ for the two characters`},
		"rate month":       {policy("candidate: {limit: 10000/month}"), `5:24: policies.p.candidate.limit: "10000/month": is not a rate: period: a month has no fixed length: must be one such as 30d, or a calendar window; write limits: [{algorithm: calendar-window, permits: 10000, every: month}]`},
		"rate monthly":     {policy("candidate: {limit: 1_000 requests a year}"), `5:24: policies.p.candidate.limit: "1_000 requests a year": must be a rate, which is permits/period; write limits: [{algorithm: calendar-window, permits: 1000, every: year}]`},
		"secret rate":      {policy("candidate: {limit: '${SECRET}'}"), `5:24: policies.p.candidate.limit: "${SECRET}": is not a rate once the environment is put in: must be a rate, which is permits/period, of 1 to 10^15 permits per 1ns to 3660 days; write 100/s, 8/min, 1000/24h or 0.5/s, for instance`},
		"secret mode":      {policy("mode: ${SECRET}"), `5:11: policies.p.mode: "${SECRET}": unknown: must be enforce, shadow, tag or off; write one of these`},
		"soft":             {policy("mode: soft"), `5:11: policies.p.mode: "soft": unknown: must be enforce, shadow, tag or off; did you mean "tag"?`},
		"tag":              {policy("mode: tag\n    candidate: {limit: 2/s}"), `6:5: policies.p.candidate: a policy with mode: tag has no candidate: it is measured itself; remove it, or write mode: enforce`},
		"rule tags":        {rule("deny: true\n    mode: tag"), `7:11: rules[0].mode: "tag": unknown: must be enforce, shadow or off; write one of these`},
		"secret key":       {policy("key: client.ip + ${SECRET}"), `5:22: policies.p.key: "client.ip + ${SECRET}": does not compile; why is not shown, as the environment has been put in; try it without ${...}`},
		"secret empty":     {policy("parent: x${EMPTY}"), `5:13: policies.p.parent: "x${EMPTY}": there is no policy of this name; define it below policies`},
		"expression":       {policy("key: \"client.ip +\\t\\\"a\\\" + nothing\""), `5:32: policies.p.key: "client.ip +\t\"a\" + nothing": there is no variable or function "nothing"; there are request.method, request.host, request.path, request.query, request.route, request.protocol, request.headers, request.cost, client, client.ip, client.net, path, attributes or now; a constant text needs quotes of its own`},
		"block":            {rule("when: |\n      request.path == \"/a\" ||\n        request.pth == \"/b\""), `8:9: rules[0].when: "request.path == \"/a\" ||\n  request.pth == \"/b\"\n": there is no variable or function "request.pth"; did you mean "request.path"?`},
		"folded":           {rule("when: >-\n      request.method == 'GET' &&\n\n      size(request.method) == request.host"), `9:28: rules[0].when: "request.method == 'GET' &&\nsize(request.method) == request.h...": found no matching overload for '_==_' applied to '(int, string)'; see the types: string(x) makes a string, int(x) a number`},
		"function":         {rule(`when: request.path.startWith("/a")`), `6:24: rules[0].when: "request.path.startWith(\"/a\")": there is no variable or function "startWith"; did you mean "startsWith"?`},
		"field":            {policy("key: header.x-customer"), `5:10: policies.p.key: "header.x-customer": is no field of the header: must be an expression of the type string, or a list of them; write request.headers["x-customer"]`},
		"listed":           {rule(`when: request.headers.exists(h, h == "x")`), `6:18: rules[0].when: "request.headers.exists(h, h == \"x\")": request.headers can only be asked for a name; write request.headers["name"], or "name" in request.headers`},
		"regex":            {rule(`when: request.path.matches("[")`), `6:32: rules[0].when: "request.path.matches(\"[\")": is not a regular expression: error parsing regexp: missing closing ]: ` + "`[`" + `; see the syntax of RE2`},
		"regex open":       {rule(`when: request.path.matches(request.query)`), `6:39: rules[0].when: "request.path.matches(request.query)": the pattern of matches must be a constant; write matches("^/v[0-9]+/"), for instance`},
		"network of a key": {rule(`when: inNetwork(client, "10.0.0.0/8")`), `6:21: rules[0].when: "inNetwork(client, \"10.0.0.0/8\")": client is a key, and may be no address; write client.ip`},
		"no network":       {rule(`when: '!inNetwork(client.net, "10.0.0.0/8")'`), `6:29: rules[0].when: "!inNetwork(client.net, \"10.0.0.0/8\")": client.net is a key, and may be no address; write client.ip`},
		"network":          {rule(`when: inNetwork(client.ip, "10.0.0.0/33")`), `6:32: rules[0].when: "inNetwork(client.ip, \"10.0.0.0/33\")": must be a network, or an address; write "10.0.0.0/8", for instance`},
		"double":           {policy("cost: 1.5"), `5:11: policies.p.cost: "1.5": is an expression of the type double: must be a number of permits from 0 to 10^15, or an expression of the type int; write int(1.5)`},
		"key list":         {policy("key: '[client.ip, request.path]'"), `5:10: policies.p.key: "[client.ip, request.path]": is an expression of the type list(string): must be an expression of the type string, or a list of them; write a list of YAML: [client.ip, request.method], for instance`},
		"when below":       {rule("match: {when: 'true'}"), `6:13: rules[0].match.when: unknown key: no "when" is accepted in match; write it beside match: when is a key of the rule`},
		"deny limits":      {rule("deny: true\n    limits: p"), `7:13: rules[0].limits: "p": a rule that denies does nothing else: it must have no limits; remove deny, or limits`},
		"deny exempt":      {rule("deny: true\n    exempt: true"), `7:13: rules[0].exempt: "true": a rule that denies does nothing else: it must have no exempt; remove deny, or exempt`},
		"deny final":       {rule("deny: true\n    final: true"), `7:12: rules[0].final: "true": a rule that denies does nothing else: it must have no final; remove deny, or final`},
		"deny charge":      {rule("deny: true\n    charge: afterwards"), `7:13: rules[0].charge: "afterwards": a rule that denies does nothing else: it must have no charge; remove deny, or charge`},
		"deny mode":        {rule("limits: p\n    mode: shadow"), `7:11: rules[0].mode: "shadow": the rule does not deny: other rules have the modes of their policies; write mode in the policy, or add deny: true`},
		"deny word":        {rule("deny: always"), `6:11: rules[0].deny: "always": must be true or false; write true or false, without quotes`},
		"block rule":       {rule("block: true"), `6:5: rules[0].block: unknown key: no "block" is accepted in a rule; did you mean "deny"? write deny: true`},
		"header case":      {rule("exempt: true\n    match: {header: {X-A: a, x-a: b}}"), `7:30: rules[0].match.header.x-a: "x-a": is the same field as X-A: case does not matter; remove one of them`},
		"host field":       {rule("exempt: true\n    match: {header: {Host: a}}"), `7:22: rules[0].match.header.Host: "Host": the host is no field of the header here; write it in match.host`},
		"url":              {rule("exempt: true\n    match: {host: 'https://api.example.com:443/x'}"), `7:19: rules[0].match.host: "https://api.example.com:443/x": must be a host such as api.example.com or *.example.com, in ASCII and without port; write api.example.com`},
		"glob":             {rule("exempt: true\n    match: {path: /a/**}"), `7:19: rules[0].match.path: "/a/**": must be a pattern with {name} for a segment, and {name...} or a slash at the end for all below; a star itself is %2A; write /users/{id}, for instance`},
		"query":            {rule("exempt: true\n    match: {path: '/a?b=c'}"), `7:19: rules[0].match.path: "/a?b=c": must be a pattern without ? and #: expressions look at queries, and in a path these are written %3F and %23; write /users/{id}, for instance`},
		"pattern":          {rule("exempt: true\n    match: {path: '/a/{id'}"), `7:19: rules[0].match.path: "/a/{id": must be a pattern with wildcards that are whole segments, such as {id}; write /users/{id}, for instance`},
		"protocol":         {rule("exempt: true\n    match: {protocol: HTTP}"), `7:23: rules[0].match.protocol: "HTTP": must be in lower case; write http`},
		"zone":             {limit("algorithm: calendar-window, permits: 5, every: day, zone: Europe/Viena"), `3:75: policies.p.limits[0].zone: "Europe/Viena": there is no such time zone: must be the name of a time zone in the IANA database; did you mean "Europe/Vienna"?`},
		"city":             {limit("algorithm: calendar-window, permits: 5, every: day, zone: vienna"), `3:75: policies.p.limits[0].zone: "vienna": there is no such time zone: must be the name of a time zone in the IANA database; did you mean "Europe/Vienna"?`},
		"local":            {limit("algorithm: calendar-window, permits: 5, every: day, zone: Local"), `3:75: policies.p.limits[0].zone: "Local": there is no such time zone: must be the name of a time zone in the IANA database; write Europe/Vienna or UTC, for instance`},
		"weekday":          {limit("algorithm: calendar-window, permits: 5, every: week, weekday: Sun"), `3:79: policies.p.limits[0].weekday: "Sun": must be a day of the week: from 1 to 7, or monday, tuesday, wednesday, thursday, friday, saturday or sunday; did you mean "sunday"?`},
		"unit":             {limit("algorithm: calendar-window, permits: 5, every: monthly"), `3:64: policies.p.limits[0].every: "monthly": unknown: must be minute, hour, day, week, month, quarter or year; did you mean "month"?`},
		"no day":           {limit("algorithm: calendar-window, permits: 5, every: week, day: 3"), `3:75: policies.p.limits[0].day: "3": every: week has no day; remove it, or write every: month`},
		"no calendar":      {limit("rate: 1/s, zone: UTC"), `3:28: policies.p.limits[0].zone: token-bucket has no zone; remove it, or write algorithm: calendar-window`},
		"no store":         {policy("consistency: leased"), `5:18: policies.p.consistency: "leased": needs a store, and the file has none: processes share a policy through one; add store: redis://127.0.0.1:6379 at the top, start weir serve --store URL, or write consistency: local`},
		"consistency":      {policy("consistency: exact"), `5:18: policies.p.consistency: "exact": unknown: must be local, coherent, leased or optimistic; did you mean "coherent"?`},
		"fail local":       {policy("fail: local"), `5:11: policies.p.fail: "local": must be closed or open: local is for shared policies, while their store is unavailable; add consistency: coherent, or remove it`},
		"hold":             {policy("hold: 1m"), `5:5: policies.p.hold: "hold": belongs to shared policies: one that is local holds nothing in a store; add consistency: coherent, or remove it`},
		"hold range":       {stored("redis://h") + "    hold: 25h\n", `7:11: policies.p.hold: "25h": is too long: must be a duration from 1ms to 24h; write 24h or less`},
		"shared queue":     {stored("redis://h") + "    queue: {limit: 5}\n", `7:5: policies.p.queue: "queue": a shared policy has no queue: it tells when to come back; remove it, or write consistency: local`},
		"shared full":      {stored("redis://h") + "    when_full: admit\n", `7:16: policies.p.when_full: "admit": must be deny: the keys of a shared policy are bounded by its store; remove it, or write consistency: local`},
		"too fine":         {"version: 1\nstore: redis://h\npolicies:\n  p: {limits: [{algorithm: fixed-window, rate: 10/1500ns}], consistency: coherent}\n", `4:16: policies.p.limits[0]: cannot be counted by the store: the window of a shared limit must be whole microseconds; write a period of whole microseconds, or consistency: local`},
		"fine tier":        {"version: 1\nstore: redis://h\npolicies:\n  p: {limits: [{algorithm: sliding-window, rate: 1/s}], consistency: leased, tiers: {by: request.method, GET: {limits: [{algorithm: sliding-window, rate: 1/9us}]}}}\n", `4:121: policies.p.tiers.GET.limits[0]: cannot be counted by the store: the segments of a shared limit must be at least 1us long; write fewer segments, or consistency: local`},
		"fine key":         {"version: 1\nstore: redis://h\npolicies:\n  p: {limit: 1/s, key: request.path, consistency: leased, keys: {a: {limit: 1/87839h59m59.999999999s}}}\n", `4:77: policies.p.keys.a.limit: "1/87839h59m59.999999999s": cannot be counted by the store: of the permits in a microsecond, as a fraction, both numbers must be at most 2^50; write a period of whole microseconds, or consistency: local`},
		"milliseconds":     {"version: 1\nstore: {url: redis://h, timeout: 100}" + sharedPolicy, `2:34: store.timeout: "100": is not a duration such as 90s, 1h30m or 30d: must be a duration from 1ms to 1m; write the unit: 100ms`},
		"connections":      {"version: 1\nstore: {url: redis://h, connections: 3}" + sharedPolicy, `2:38: store.connections: "3": must be 1, 2, 4 or 8; write 2, for instance`},
		"two ports":        {"version: 1\nstore: redis://h:1:2" + sharedPolicy, `2:8: store: "redis://h:1:2": has a host that is not a name or an address: must be a URL such as redis://host:6379/0, rediss://host:6379 over TLS, or unix:///path/to/socket; write one port, and an address of IPv6 in brackets`},
		"no port":          {"version: 1\nstore: 'redis://h?addr=h:x'" + sharedPolicy, `2:8: store: "redis://h?addr=h:x": has an addr that is not host:port; write ?addr=10.0.0.2:6379, for instance`},
		"leased out":       {"version: 1\nstore: redis://h\npolicies:\n  p: {limits: [{algorithm: concurrency, permits: 3}], consistency: leased}\n", `4:16: policies.p.limits[0]: a limit of concurrency cannot be leased: it must be coherent or local; write consistency: coherent, or make another policy of this limit`},
		"store scheme":     {stored("rediss:/h"), `2:8: store: "rediss:/h": has no host: must be a URL such as redis://host:6379/0, rediss://host:6379 over TLS, or unix:///path/to/socket; write redis://127.0.0.1:6379, for instance`},
		"store host":       {stored("redis.example.com:6379"), `2:8: store: "redis.example.com:6379": must be a URL such as redis://host:6379/0, rediss://host:6379 over TLS, or unix:///path/to/socket; write redis://redis.example.com:6379`},
		"store typo":       {stored("reddis://h"), `2:8: store: "reddis://h": must be a URL such as redis://host:6379/0, rediss://host:6379 over TLS, or unix:///path/to/socket; did you mean "redis"?`},
		"store db":         {stored("redis://u:hunter2@h/zero"), `2:8: store: "redis://u:xxxxx@h/zero": has a database that is not a number from 0 to 65535; write redis://host:6379/0, for instance`},
		"store slash":      {stored("redis://h/"), `2:8: store: "redis://h/": ends in a slash without the number of a database: must be a URL such as redis://host:6379/0, rediss://host:6379 over TLS, or unix:///path/to/socket; remove the slash`},
		"store port":       {stored("redis://h:70000"), `2:8: store: "redis://h:70000": has a port that is not from 1 to 65535; write redis://127.0.0.1:6379, for instance`},
		"store param":      {stored("redis://h?adr=i:1"), `2:8: store: "redis://h?adr=i:1": has a parameter that is not known: accepted are addr, db, master_set or skip_verify; did you mean "addr"?`},
		"store TLS":        {stored("redis://h?tls=true"), `2:8: store: "redis://h?tls=true": has a parameter that is not known: accepted are addr, db, master_set or skip_verify; remove it; for TLS write rediss://`},
		"store #":          {stored("redis://u:1#secret@h"), `2:8: store: "redis://u:xxxxx@h": has a #, after which nothing is read: must be a URL such as redis://host:6379/0, rediss://host:6379 over TLS, or unix:///path/to/socket; write %23 if it is of the password`},
		"store addr":       {stored("redis://h?addr=i"), `2:8: store: "redis://h?addr=i": has an addr that is not host:port; write ?addr=10.0.0.2:6379, for instance`},
		"store set":        {stored("redis://h?master_set="), `2:8: store: "redis://h?master_set=": has an empty master_set: must be the name of the set that sentinels watch; write ?master_set=mymaster, for instance, or remove it`},
		"store socket":     {stored("unix://run/redis.sock"), `2:8: store: "unix://run/redis.sock": has a host, which a socket has not: must be unix:///path/to/socket; write unix:///run/redis/redis.sock, for instance`},
		"store path":       {stored("unix://"), `2:8: store: "unix://": has no path: must be unix:///path/to/socket; write unix:///run/redis/redis.sock, for instance`},
		"store kind":       {stored("[a]"), `2:1: store: is a list: must be a URL such as redis://host:6379/0, rediss://host:6379 over TLS, or unix:///path/to/socket; write redis://127.0.0.1:6379, for instance`},
		"store empty":      {stored("{prefix: x}"), `2:1: store.url: is missing: a store needs url, or addresses; add url: redis://127.0.0.1:6379, for instance`},
		"store twice":      {stored("{url: redis://h, addresses: h:1}"), `2:25: store.addresses: "addresses": addresses stand beside url: there must be one of them; write further addresses into url, as ?addr=host:port`},
		"store master":     {stored("{url: redis://h, master: m}"), `2:25: store.master: "master": master belongs to addresses: beside url there must be none; write it into url, as ?master_set=name`},
		"store key":        {stored("{host: h}"), `2:9: store.host: unknown key: no "host" is accepted in a store; did you mean "addresses"? write addresses: [host:6379], or url`},
		"store secret":     {stored("'redis://u:${SECRET}@h/${SECRET}'"), `2:8: store: "redis://u:${SECRET}@h/${SECRET}": cannot be used once the environment is put in: must be a URL such as redis://host:6379/0, rediss://host:6379 over TLS, or unix:///path/to/socket; write redis://127.0.0.1:6379, for instance`},
		"store env":        {stored("'redis://u:${PASS}@h'"), `2:19: store: "redis://u:${PASS}@h": the environment has no variable PASS; set it, or write ${PASS:-default}`},
		"store drift":      {stored("{url: redis://h, optimistic: {drift: 20}}"), `2:45: store.optimistic.drift: "20": must be a share of the limit from 1% to 100%; write 20%`},
		"top level":        {"version: 1\nlimits: []\n", `2:1: limits: unknown key: no "limits" is accepted in the file; limits stand in a policy: write policies: {name: {limits: [...]}}`},
		"long":             {policy("key: '\"" + strings.Repeat("a", 4100) + "\"'"), `5:10: policies.p.key: "\"` + strings.Repeat("a", 59) + `...": has 4102 bytes: an expression has at most 4096; split it among several rules`},

		"fail-open":             {policy("fail: fail-open"), `5:11: policies.p.fail: "fail-open": unknown: must be closed, open or local; did you mean "open"?`},
		"fail true":             {policy("fail: true"), `5:11: policies.p.fail: "true": unknown: must be closed, open or local; write one of these`},
		"every 1d":              {limit("algorithm: calendar-window, permits: 5, every: 1d"), `3:64: policies.p.limits[0].every: "1d": unknown: must be minute, hour, day, week, month, quarter or year; did you mean "day"?`},
		"every 1mo":             {limit("algorithm: calendar-window, permits: 5, every: 1mo"), `3:64: policies.p.limits[0].every: "1mo": unknown: must be minute, hour, day, week, month, quarter or year; did you mean "month"?`},
		"every 1m":              {limit("algorithm: calendar-window, permits: 5, every: 1m"), `3:64: policies.p.limits[0].every: "1m": unknown: must be minute, hour, day, week, month, quarter or year; did you mean "month" or "minute"?`},
		"five at once":          {of("limit: {algorithm: concurrency, limit: 5}"), `3:7: policies.p.limit: is a mapping: must be a rate, which is permits/period such as 100/s; write limits: [{algorithm: concurrency, permits: 5}]`},
		"limit for permits":     {limit("algorithm: concurrency, limit: 5"), `3:41: policies.p.limits[0].limit: unknown key: no "limit" is accepted in a limit; write permits: 5`},
		"type":                  {limit("type: concurrency, permits: 5"), `3:17: policies.p.limits[0].type: unknown key: no "type" is accepted in a limit; did you mean "algorithm"?`},
		"request.ip":            {policy("key: request.IP"), `5:10: policies.p.key: "request.IP": there is no variable or function "request.IP"; did you mean "client.ip"?`},
		"remote_addr":           {policy("key: request.remote_addr"), `5:10: policies.p.key: "request.remote_addr": there is no variable or function "request.remote_addr"; did you mean "client.ip"?`},
		"request.user":          {policy("key: request.user"), `5:10: policies.p.key: "request.user": there is no variable or function "request.user"; there are request.method, request.host, request.path, request.query, request.route, request.protocol, request.headers, request.cost, client, client.ip, client.net, path, attributes or now; a constant text needs quotes of its own`},
		"in a file":             {policy("durability: file"), `5:17: policies.p.durability: "file": unknown: must be memory or cluster; write durability: cluster, and cluster: {file: /var/lib/weir/limits} at the top`},
		"limit and burst":       {of(`limit: "10/s, burst 20"`), `3:14: policies.p.limit: "10/s, burst 20": is not a rate: period: must be a unit (s, min, h, day, ...), a number with a unit (24h), or a duration (1m30s); write limit: 10/s and burst: 20`},
		"rate and burst":        {limit(`rate: "10/s, burst 20"`), `3:23: policies.p.limits[0].rate: "10/s, burst 20": is not a rate: period: must be a unit (s, min, h, day, ...), a number with a unit (24h), or a duration (1m30s); write rate: 10/s and burst: 20`},
		"text of a limit":       {of("limit: fixed-window 100/min"), `3:14: policies.p.limit: "fixed-window 100/min": is not a rate: permits: must be a number above 0, up to 10^15; write limits: [{algorithm: fixed-window, rate: 100/min}]`},
		"segments":              {of("limit: sliding-window 9/min in 3 segments"), `3:14: policies.p.limit: "sliding-window 9/min in 3 segments": is not a rate: permits: must be a number above 0, up to 10^15; write limits: [{algorithm: sliding-window, rate: 9/min, segments: 3}]`},
		"windowed":              {of("limit: {algorithm: fixed, rate: 5/s, burst: 3}"), `3:7: policies.p.limit: is a mapping: must be a rate, which is permits/period such as 100/s; write limits: [{algorithm: fixed-window, rate: 5/s}]`},
		"rate and period":       {limit("rate: 5/s, period: 1m"), `3:28: policies.p.limits[0].period: unknown key: no "period" is accepted in a limit; the period is in rate: write rate: 100/1m`},
		"no algorithm":          {of("limit: {algorithm: magic, rate: 5/s}"), `3:7: policies.p.limit: is a mapping: must be a rate, which is permits/period such as 100/s; write 100/s, 8/min, 1000/24h or 0.5/s, for instance`},
		"month from":            {of("limit: 5 per month from day 3"), `3:14: policies.p.limit: "5 per month from day 3": must be a rate, which is permits/period; write 100/s, 8/min, 1000/24h or 0.5/s, for instance`},
		"rate of a policy":      {of("rate: 5/s"), `3:7: policies.p.rate: unknown key: no "rate" is accepted in a policy; write limit: 5/s`},
		"algorithm of a policy": {of("algorithm: concurrency, permits: 5"), `3:7: policies.p.algorithm: unknown key: no "algorithm" is accepted in a policy; write limits: [{algorithm: concurrency, permits: 5}]`},
		"at once":               {of("limit: 4 at once"), `3:14: policies.p.limit: "4 at once": must be a rate, which is permits/period; write limits: [{algorithm: concurrency, permits: 4}]`},
		"rate 1k":               {policy("candidate: {limit: 1k/s}"), `5:24: policies.p.candidate.limit: "1k/s": is not a rate: permits: must be a number above 0, up to 10^15; write 1000/s`},
		"rate ulule":            {policy("candidate: {limit: 10-M}"), `5:24: policies.p.candidate.limit: "10-M": must be a rate, which is permits/period; write 10/min`},
		"million":               {policy("max_keys: 1M"), `5:15: policies.p.max_keys: "1M": is not a whole number: must be a number of keys from 1 to 2^31; write 1000000`},
		"burst e":               {policy("burst: 1e3"), `5:12: policies.p.burst: "1e3": is not a whole number: must be a number of permits from 1 to 10^15; write 1000`},
		"burst comma":           {policy(`burst: "1,000"`), `5:12: policies.p.burst: "1,000": is not a whole number: must be a number of permits from 1 to 10^15; write 1000`},
		"requests":              {of("requests: 100, window: 60s"), `3:7: policies.p.requests: unknown key: no "requests" is accepted in a policy; write limit: 100/min`},
		"requests of a limit":   {of("limit: {requests: 100, window: 60s}"), `3:7: policies.p.limit: is a mapping: must be a rate, which is permits/period such as 100/s; write limit: 100/min`},
		"requests of an item":   {limit("requests: 100, window: 60s"), `3:17: policies.p.limits[0].requests: unknown key: no "requests" is accepted in a limit; write rate: 100/min`},
		"per unit":              {of("requests_per_unit: 10, unit: second"), `3:7: policies.p.requests_per_unit: unknown key: no "requests_per_unit" is accepted in a policy; write limit: 10/s`},
		"rps":                   {of("rps: 10"), `3:7: policies.p.rps: unknown key: no "rps" is accepted in a policy; write limit: 10/s`},
		"average":               {of("average: 10, period: 1s"), `3:7: policies.p.average: unknown key: no "average" is accepted in a policy; write limit: 10/s`},
		"max":                   {of("max: 10, duration: 60"), `3:7: policies.p.max: unknown key: no "max" is accepted in a policy; write limit: 10/min`},
		"shadow true":           {policy("shadow: true"), `5:5: policies.p.shadow: unknown key: no "shadow" is accepted in a policy; did you mean "mode"? write mode: shadow`},
		"enabled":               {policy("enabled: false"), `5:5: policies.p.enabled: unknown key: no "enabled" is accepted in a policy; did you mean "mode"? write mode: off for false`},
		"threshold":             {policy("lockout: {threshold: 5}"), `5:15: policies.p.lockout.threshold: unknown key: no "threshold" is accepted in a lockout; did you mean "refusals"?`},
		"lockout window":        {policy("lockout: {window: 5m}"), `5:15: policies.p.lockout.window: unknown key: no "window" is accepted in a lockout; did you mean "within"?`},
		"lockout duration":      {policy("lockout: {duration: 5m}"), `5:15: policies.p.lockout.duration: unknown key: no "duration" is accepted in a lockout; did you mean "for"?`},
		"policy is a rate":      {"version: 1\npolicies: {a: 5/s}\n", `2:15: policies.a: "5/s": is text: must be a mapping, a policy; write a: {limit: 5/s}`},
		"policy is a number":    {"version: 1\npolicies: {a: 5}\n", `2:15: policies.a: "5": is a number: must be a mapping, a policy; write {limit: 100/s}, for instance`},
		"limits is a rate":      {of("limits: 5/s"), `3:15: policies.p.limits: "5/s": is text: must be a list of 1 to 8 limits; write limit: 5/s`},
		"limits is a mapping":   {of("limits: {algorithm: semaphore, permits: 5}"), `3:7: policies.p.limits: is a mapping: must be a list of 1 to 8 limits; write limits: [{algorithm: concurrency, permits: 5}]`},
		"limit is a mapping":    {of("limit: {rate: 5/s, burst: 10}"), `3:7: policies.p.limit: is a mapping: must be a rate, which is permits/period such as 100/s; write limit: 5/s and burst: 10`},
		"limits of rates":       {of("limits: [5/s]"), `3:16: policies.p.limits[0]: "5/s": is text: must be a mapping, a limit; write {rate: 5/s}`},
		"queue":                 {policy("queue: 5"), `5:12: policies.p.queue: "5": is a number: must be a mapping, a queue; write {limit: 100}, for instance`},
		"tier":                  {policy("tiers: {by: request.method, gold: 50/s}"), `5:39: policies.p.tiers.gold: "50/s": is text: must be a mapping, a choice of limits; write gold: {limit: 50/s}`},
		"keys":                  {policy("keys: {bob: 50/s}"), `5:17: policies.p.keys.bob: "50/s": is text: must be a mapping, a choice of limits; write bob: {limit: 50/s}`},
		"candidate":             {policy("candidate: 3/s"), `5:16: policies.p.candidate: "3/s": is text: must be a mapping, a choice of limits; write candidate: {limit: 3/s}`},
		"not indented":          {"version: 1\npolicies:\n  a:\n  limit: 5/s\n  queue: {limit: 5}\nrules:\n  - {name: r, limits: a}\n", `3:3: policies.a: is empty: its keys stand beside it, and not below it; indent limit, queue by two more spaces`},
		"assignment":            {rule(`when: request.path = "/a"`), `6:24: rules[0].when: "request.path = \"/a\"": is not an expression: a single = is no operator; write ==`},
		"hyphens":               {policy("key: request.headers.x-api-key"), `5:10: policies.p.key: "request.headers.x-api-key": the name of a field with a hyphen stands in brackets; write request.headers["x-api-key"]`},
		"nginx":                 {policy("key: $binary_remote_addr"), `5:10: policies.p.key: "$binary_remote_addr": is a variable of nginx: must be an expression of the type string, or a list of them; write client.ip`},
		"template":              {policy("candidate: {limit: {{ .Values.rate }}}"), `5:17: policies.p.candidate.limit: is a template: must be a rate, which is permits/period such as 100/s; fill in the template, and give the file that comes out`},
		"template of text":      {policy("mode: '{{ .Values.mode }}'"), `5:11: policies.p.mode: "{{ .Values.mode }}": unknown: must be enforce, shadow, tag or off; fill in the template, and give the file that comes out`},
		"dollar":                {policy("candidate: {limit: $RATE}"), `5:24: policies.p.candidate.limit: "$RATE": must be a rate, which is permits/period; write ${RATE}`},
		"localhost":             {"version: 1\nstore: {addresses: localhost}" + sharedPolicy, `2:20: store.addresses: "localhost": must be host:port; write localhost:6379`},
	} {
		t.Run(name, func(t *testing.T) {
			all := mistakesOf(t, "f", []byte(c.text), config.Options{Env: env})
			if len(all) != 1 || all[0].String() != "f:"+c.want {
				t.Errorf("%d mistakes\ngot:  %v\nwant: f:%s", len(all), all, c.want)
			}
		})
	}
}

// TestFileOfTests: a file of unit tests is told as such, and not by its keys one after the other.
func TestFileOfTests(t *testing.T) {
	for _, text := range []string{
		"config: weir.yaml\ntests:\n  - {name: a, steps: [{request: GET /a}]}\n",
		"# tests\ntests: []\nclient: 192.0.2.1\n",
	} {
		all := mistakesOf(t, "weir_test.yaml", []byte(text), config.Options{})
		if len(all) != 1 || all[0].Message != "this is a file of unit tests, and not a configuration" ||
			!strings.HasPrefix(all[0].Fix, "run: weir test weir_test.yaml, ") {
			t.Errorf("%q: %v", text, all)
		}
	}
	for _, text := range []string{"config: weir.yaml\n", "version: 1\nrules: []\ntests: []\n", "[tests]\n", "tests\n"} {
		for _, m := range mistakesOf(t, "weir.yaml", []byte(text), config.Options{}) {
			if strings.Contains(m.Message, "unit tests") {
				t.Errorf("%q: %v", text, m)
			}
		}
	}
}

// TestWordsOfTheFlag: what a key of the flag --by is in a file is told, and is a key.
func TestWordsOfTheFlag(t *testing.T) {
	for word, want := range map[string]string{
		"header:X-Api-Key":      `request.headers["x-api-key"]`,
		"client,path":           "[client, request.path]",
		"none":                  `'"all"'`,
		"client.ip,header:X-Id": `[client.ip, 'request.headers["x-id"]']`,
	} {
		file := func(key string) []byte {
			return []byte("version: 1\npolicies:\n  p:\n    limit: 1/s\n    key: " + key + "\nrules:\n  - {name: r, limits: p}\n")
		}
		all := mistakesOf(t, "weir.yaml", file(word), config.Options{})
		if len(all) != 1 || all[0].Fix != "write "+want || !strings.Contains(all[0].Message, "--by") {
			t.Errorf("%s: %v, want %s", word, all, want)
		}
		if _, err := config.Parse("weir.yaml", file(want), config.Options{}); err != nil {
			t.Errorf("%s: %v", want, err)
		}
	}
}
