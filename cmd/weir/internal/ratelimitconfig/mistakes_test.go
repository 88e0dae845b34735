package ratelimitconfig_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/policy"
)

const limit = "rate_limit: {unit: hour, requests_per_unit: 1}"

// TestMistakes: each has its place, and all are listed.
func TestMistakes(t *testing.T) {
	for text, want := range map[string][]string{
		"":                {`a.yaml:1:1: is empty: must have a domain; write domain: a name`},
		"# nothing\n---":  {`a.yaml:1:1: is empty: must have a domain; write domain: a name`},
		"[]":              {`a.yaml:1:1: must be a mapping, the configuration of a domain; write domain: a name, and descriptors: below it`},
		"descriptors: []": {`a.yaml:1:1: has no domain; write domain: a name`},
		"domain:":         {`a.yaml:1:1: has no domain; write domain: a name`},
		`domain: ""`:      {`a.yaml:1:1: domain: must not be empty; write domain: a name`},
		"domain: [a]":     {`a.yaml:1:1: domain: must be text; write domain: text`},
		"domain: d\ndomian: e": {
			`a.yaml:2:1: domian: "domian": unknown key in the configuration of a domain; did you mean "domain"?`,
		},
		"domain: d\nsomething: e": {
			`a.yaml:2:1: something: "something": unknown key in the configuration of a domain; accepted are domain or descriptors`,
		},
		"domain: d\ndomain: e": {`a.yaml:2:1: "domain": stands here twice: first in line 1; remove one of them`},
		"domain: d\n? [a]\n: b": {
			`a.yaml:2:3: a key must be text; write key: value`,
		},
		"domain: d\n---\ndomain: e": {`a.yaml:2:1: begins a second document: a file has one only; write a file for each domain`},
		"domain: d\ndescriptors: a": {
			`a.yaml:2:14: descriptors: "a": must be a list of descriptors; write a line with - for each: - key: a name`,
		},
		"domain: d\ndescriptors: [a, [b], ~]": {
			`a.yaml:2:15: descriptors[0]: "a": must be a mapping, a descriptor; write key: a name, and rate_limit: or descriptors: below it`,
			`a.yaml:2:18: descriptors[1]: must be a mapping, a descriptor; write key: a name, and rate_limit: or descriptors: below it`,
			`a.yaml:2:23: descriptors[2]: "~": must be a mapping, a descriptor; write key: a name, and rate_limit: or descriptors: below it`,
		},
		"domain: d\ndescriptors:\n- value: a\n- key: ''\n- key: [a]\n- {key: ~}": {
			`a.yaml:3:3: descriptors[0]: has no key; write key: a name`,
			`a.yaml:4:3: descriptors[1].key: must not be empty; write key: a name`,
			`a.yaml:5:3: descriptors[2].key: must be text; write key: text`,
			`a.yaml:6:3: descriptors[3]: has no key; write key: a name`,
		},
		"domain: d\ndescriptors:\n- {key: a}\n- {key: a, value: ''}\n- {key: b, value: c*}\n- {key: b, value: c*}": {
			`a.yaml:4:3: descriptors[1]: is a second descriptor with this key and no value: the first is a.yaml:3:3; remove one of them`,
			`a.yaml:6:3: descriptors[3]: is a second descriptor with this key and this value: the first is a.yaml:5:3; remove one of them`,
		},
		"domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: minutes}\n- key: b\n  rate_limit: {requests_per_unit: 1.5}\n- {key: c, rate_limit: 5}": {
			`a.yaml:4:15: descriptors[0].rate_limit: has no requests_per_unit; write requests_per_unit: 100, for instance, or 0 to refuse everything`,
			`a.yaml:4:22: descriptors[0].rate_limit.unit: "minutes": is not a unit: must be second, minute, hour, day, week, month or year; ` +
				`did you mean "minute"?`,
			`a.yaml:6:15: descriptors[1].rate_limit: has no unit; write unit: second, minute, hour, day, week, month or year`,
			`a.yaml:6:35: descriptors[1].rate_limit.requests_per_unit: "1.5": is not written as a decimal number in range: ` +
				`must be a whole number from 0 to 4294967295; write 100, for instance`,
			`a.yaml:7:24: descriptors[2].rate_limit: "5": must be a mapping, a limit; write unit: minute, and requests_per_unit: 100 below it`,
		},
		"domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: unknown, requests_per_unit: -1}": {
			`a.yaml:4:22: descriptors[0].rate_limit.unit: "unknown": is not a unit: must be second, minute, hour, day, week, month or year; ` +
				`write unit: minute, for instance`,
			`a.yaml:4:50: descriptors[0].rate_limit.requests_per_unit: "-1": must be a whole number from 0 to 4294967295; write 0, for instance`,
		},
		"domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: hour, requests_per_unit: 010}\n- key: b\n  rate_limit: {unit: hour, requests_per_unit: '10'}\n" +
			"- key: c\n  rate_limit: {unit: hour, requests_per_unit: 4294967296}\n- key: d\n  rate_limit: {unit: hour, requests_per_unit: [1]}": {
			`a.yaml:4:47: descriptors[0].rate_limit.requests_per_unit: "010": is not written as a decimal number in range: ` +
				`must be a whole number from 0 to 4294967295; write 100, for instance`,
			`a.yaml:6:47: descriptors[1].rate_limit.requests_per_unit: "10": is text: must be a whole number from 0 to 4294967295; ` +
				`write it without quotes`,
			`a.yaml:8:47: descriptors[2].rate_limit.requests_per_unit: "4294967296": must be a whole number from 0 to 4294967295; ` +
				`write 4294967295, for instance`,
			`a.yaml:10:28: descriptors[3].rate_limit.requests_per_unit: must be a whole number from 0 to 4294967295; write requests_per_unit: 100`,
		},
		"domain: d\ndescriptors:\n- key: a\n  shadow_mode: 'true'\n  share_threshold: yes\n  " + limit: {
			`a.yaml:4:16: descriptors[0].shadow_mode: "true": must be true or false; write true or false, without quotes`,
			`a.yaml:5:20: descriptors[0].share_threshold: "yes": is for values with a wildcard: there is no * in the value; ` +
				`remove it, or write value: prefix*`,
		},
		"domain: d\ndescriptors:\n- key: a\n  rate_limit: {unlimited: true, unit: day, algorithm: token_bucket, burst: 1, consistency: local, unit_multiplier: 2}": {
			`a.yaml:4:39: descriptors[0].rate_limit.unit: "day": must not stand beside unlimited: true; remove one of them`,
			`a.yaml:4:55: descriptors[0].rate_limit.algorithm: "token_bucket": must not stand beside unlimited: true; remove one of them`,
			`a.yaml:4:76: descriptors[0].rate_limit.burst: "1": must not stand beside unlimited: true; remove one of them`,
			`a.yaml:4:92: descriptors[0].rate_limit.consistency: "local": must not stand beside unlimited: true; remove one of them`,
			`a.yaml:4:116: descriptors[0].rate_limit.unit_multiplier: "2": must not stand beside unlimited: true; remove one of them`,
		},
		"domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: year, requests_per_unit: 1, unit_multiplier: 11, algorithm: gcra, burst: 2, consistency: exact}": {
			`a.yaml:4:67: descriptors[0].rate_limit.unit_multiplier: "11": must be a whole number from 1 to 10; write 10, for instance`,
			`a.yaml:4:82: descriptors[0].rate_limit.algorithm: "gcra": is not an algorithm: must be fixed_window, token_bucket, ` +
				`sliding_window or sliding_counter; remove it to have fixed_window`,
			`a.yaml:4:95: descriptors[0].rate_limit.burst: "2": is for token buckets, and this is fixed_window; ` +
				`remove it, or write algorithm: token_bucket`,
			`a.yaml:4:111: descriptors[0].rate_limit.consistency: "exact": is not a consistency: must be local, coherent, leased or optimistic; ` +
				`remove it to have local`,
		},
		"domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: day, requests_per_unit: 0, algorithm: token-bucket, burst: 2}": {
			`a.yaml:4:81: descriptors[0].rate_limit.burst: "2": has no effect where requests_per_unit is 0; remove one of them`,
		},
		"domain: d\ndescriptors:\n- key: a\n  algorithm: token_bucket\n  " + limit: {
			`a.yaml:4:3: descriptors[0].algorithm: "algorithm": has no effect in a descriptor: it belongs in a limit; move it there, or remove it`,
		},
		"domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: day, requests_per_unit: 1, name: n, replaces: [{name: n}, {name: ''}, {}, n, {nam: x}]}": {
			`a.yaml:4:76: descriptors[0].rate_limit.replaces[0].name: "n": is the name of the limit itself; write the name of another limit`,
			`a.yaml:4:81: descriptors[0].rate_limit.replaces[1].name: must not be empty; write the name of another limit`,
			`a.yaml:4:92: descriptors[0].rate_limit.replaces[2]: has no name; write - name: the name of another limit`,
			`a.yaml:4:96: descriptors[0].rate_limit.replaces[3]: "n": must be a mapping, the name of a limit; write name: the name of another limit`,
			`a.yaml:4:100: descriptors[0].rate_limit.replaces[4].nam: "nam": unknown key in the name of a limit; did you mean "name"?`,
		},
		"domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: day, requests_per_unit: 1, replaces: n}": {
			`a.yaml:4:59: descriptors[0].rate_limit.replaces: "n": must be a list of names of limits; ` +
				`write a line with - for each: - name: the name of another limit`,
		},
		"domain: d\ndescriptors:\n- key: a\n  metadata: 5\n  " + limit + "\n- key: b\n  metadata: {? [x] : y}\n  " + limit: {
			`a.yaml:4:13: descriptors[0].metadata: "5": must be a mapping; write metadata: and key: value below it`,
			`a.yaml:7:16: descriptors[1].metadata: a key must be text; write key: value`,
		},
		"domain: d\ndescriptors:\n\t- key: a": {
			`a.yaml:3:1: is not YAML: found character that cannot start any token while scanning for the next token; ` +
				`indent with spaces, and put the value in quotes`,
		},
		"domain: d\ndescriptors: [{key: a, value: *}]": {
			`a.yaml:2:32: is not YAML: did not find expected alphabetic or numeric character while scanning an alias; ` +
				`put a value that begins with * in quotes: "*"`,
		},
		"domain: d\nä: \xff": {`a.yaml:2:4: is not UTF-8; save the file as UTF-8`},
		"domain: d\n<<: [a]": {
			`a.yaml:2:6: "a": must be a mapping, or a list of mappings, that << merges into this one; write <<: *anchor`,
		},
	} {
		_, err := ratelimitconfig.Parse(files(text), ratelimitconfig.Options{})
		var list *yamlread.Errors
		if !errors.As(err, &list) {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := list.Lines(); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s\n\nhas the mistakes\n%s\nand not\n%s", text, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestConsistencyWithoutStore: what cannot be shared is told where it stands, and may be kept in the process.
func TestConsistencyWithoutStore(t *testing.T) {
	const text = "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: second, requests_per_unit: 1, consistency: "
	_, err := ratelimitconfig.Parse(files(text+"coherent}}"), ratelimitconfig.Options{NoStore: true})
	const want = `a.yaml:3:74: descriptors[0].rate_limit.consistency: "coherent": needs a store, and there is none: processes share a ` +
		"limit through one; start weir serve --store URL, or write consistency: local"
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	parse(t, ratelimitconfig.Options{NoStore: true}, text+"local}}")
	parse(t, ratelimitconfig.Options{}, text+"coherent}}")
}

// TestSeveralFiles: the mistakes of all are listed, and a domain has one file unless they are merged.
func TestSeveralFiles(t *testing.T) {
	one, two := "domain: d\ndescriptors: [{key: a, "+limit+"}]", "domain: d\ndescriptors: [{key: b, "+limit+"}]"
	for _, c := range []struct {
		merge bool
		files []string
		want  string
	}{
		{false, []string{one, two}, "weir: the rate limit configuration cannot be used: 1 mistake\nb.yaml:1:9: domain: \"d\": is the domain of another file, " +
			"a.yaml:1:9, and files are not merged; put the descriptors into one file, or have files merged by --ratelimit-merge"},
		{true, []string{one, two}, ""},
		{true, []string{one, one}, "weir: the rate limit configuration cannot be used: 1 mistake\n" +
			"b.yaml:2:15: descriptors[0]: is a second descriptor with this key and no value: the first is a.yaml:2:15; remove one of them"},
		{false, []string{"domain:", two, "domain: e\nx: y"}, "weir: the rate limit configuration cannot be used: 2 mistakes\n" +
			"a.yaml:1:1: has no domain; write domain: a name\n" +
			"c.yaml:2:1: x: \"x\": unknown key in the configuration of a domain; accepted are domain or descriptors"},
		{false, nil, ""},
	} {
		_, err := ratelimitconfig.Parse(files(c.files...), ratelimitconfig.Options{Merge: c.merge})
		if got := ""; err != nil && err.Error() != c.want || err == nil && c.want != got {
			t.Errorf("%q: %v, want %s", c.files, err, c.want)
		}
	}
	c := parse(t, ratelimitconfig.Options{Merge: true}, one, two, "domain: c")
	if got := fmt.Sprint(c.Domains()); got != "[c d]" {
		t.Error(got)
	}
	for _, descriptor := range []string{"a=x", "b=x"} {
		var m ratelimitconfig.Match
		if c.Match(&m, "d", entries(descriptor), ratelimitconfig.Override{}, 1); m.Outcome != ratelimitconfig.Limited {
			t.Errorf("%s: %+v", descriptor, m)
		}
	}
}

// TestWarnings: what has no effect is told, and is no mistake for envoyproxy/ratelimit either.
func TestWarnings(t *testing.T) {
	c := parse(t, ratelimitconfig.Options{}, `
domain: d
name: x
descriptors:
  - key: a*
    unit: hour
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 1, shadow_mode: true, replaces: [{name: nobody}]}
  - {key: b, quota_mode: true, metadata: {a: b}}
  - {key: c, shadow_mode: true, quota_mode: true, `+limit+`}
  - {key: d, rate_limit: {unlimited: true, requests_per_unit: 5}}
  - {key: e, rate_limit: {unit: second, requests_per_unit: 4000000000}}
  - {key: f, rate_limit: {unlimited: true, unit: ''}}
  - {key: g, rate_limit: {unlimited: true, unit: fortnight}}
  - {key: h, rate_limit: {unit: day, requests_per_unit: +1_000}}
`)
	want := []string{
		`a.yaml:3:1: name: "name": has no effect in the configuration of a domain: it belongs in a limit; move it there, or remove it`,
		`a.yaml:5:10: descriptors[0].key: "a*": is a key, in which * stands for itself: wildcards are for values; ` +
			`remove it if it is meant to match others`,
		`a.yaml:6:5: descriptors[0].unit: "unit": has no effect in a descriptor: it belongs in a limit; move it there, or remove it`,
		`a.yaml:8:52: descriptors[0].rate_limit.shadow_mode: "shadow_mode": has no effect in a limit: it belongs in a descriptor; ` +
			`move it there, or remove it`,
		`a.yaml:8:89: descriptors[0].rate_limit.replaces[0].name: "nobody": no limit of the domain has this name; see how it is spelled`,
		`a.yaml:9:26: descriptors[1].quota_mode: "true": has no effect: the descriptor has no limit of its own; ` +
			`move it to the descriptor with the limit`,
		`a.yaml:9:32: descriptors[1].metadata: has no effect: the descriptor has no limit of its own; move it to the descriptor with the limit`,
		`a.yaml:10:45: descriptors[2].quota_mode: "true": is never reached beside shadow_mode, so that no quota refuses the call; ` +
			`remove one of them`,
		`a.yaml:11:63: descriptors[3].rate_limit.requests_per_unit: "5": has no effect beside unlimited: true; remove one of them`,
		`a.yaml:12:60: descriptors[4].rate_limit.requests_per_unit: "4000000000": is counted as 1000000000 per second; ` +
			`write unlimited: true if there is no limit`,
		`a.yaml:13:50: descriptors[5].rate_limit.unit: has no effect beside unlimited: true; remove one of them`,
		`a.yaml:14:50: descriptors[6].rate_limit.unit: "fortnight": has no effect beside unlimited: true; remove one of them`,
	}
	var got []string
	for _, w := range c.Warnings {
		got = append(got, w.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s\n\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if l := c.Limits[len(c.Limits)-1]; l.RequestsPerUnit != 1000 {
		t.Errorf("a number with a sign is read as %d", l.RequestsPerUnit)
	}
}

// TestOptionsRefused: options that cannot be used are named.
func TestOptionsRefused(t *testing.T) {
	for want, o := range map[string]ratelimitconfig.Options{
		`Options.Algorithm is Algorithm(4): must be fixed_window, token_bucket, sliding_window or sliding_counter`: {Algorithm: 4},
		`Options.Policies is 10001: must be from 1 to 10000`:                                                       {Policies: 10_001},
	} {
		if _, err := ratelimitconfig.Parse(nil, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	// A limit of this process never fails for want of a store.
	c := parse(t, ratelimitconfig.Options{Consistency: policy.ConsistencyCoherent, Fail: policy.FailLocal}, "domain: d\ndescriptors:\n"+
		"- {key: a, "+limit+"}\n- {key: b, rate_limit: {unit: day, requests_per_unit: 1, consistency: local}}")
	if a, b := c.Policies[0], c.Policies[1]; a.Fail != policy.FailLocal || a.Consistency != policy.ConsistencyCoherent ||
		b.Fail != policy.FailClosed || b.Consistency != policy.ConsistencyLocal {
		t.Errorf("%+v %+v", a, b)
	}
}
