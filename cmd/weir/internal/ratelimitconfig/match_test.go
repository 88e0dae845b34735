package ratelimitconfig_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
)

// told is a match in words: none, unlimited, or "requests/unit key".
func told(m *ratelimitconfig.Match) string {
	switch m.Outcome {
	case ratelimitconfig.None:
		return "none"
	case ratelimitconfig.Unlimited:
		return "unlimited"
	case ratelimitconfig.Limited, ratelimitconfig.Replaced:
	}
	return fmt.Sprintf("%d/%v %s", m.Limit.RequestsPerUnit, m.Limit.Unit, m.Key)
}

// TestMatch looks descriptors up in files that are written after each part of the documentation of envoyproxy/ratelimit.
func TestMatch(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		want map[string]string // "domain: entries"
	}{
		"values": {
			`
domain: storage
descriptors:
  - {key: table, value: orders, rate_limit: {unit: second, requests_per_unit: 300}}
  - {key: table, value: other, rate_limit: {unit: SECOND, requests_per_unit: 200}}
`, map[string]string{
				"storage: table=orders":         "300/second ",
				"storage: table=other":          "200/second ",
				"storage: table=unknown":        "none",
				"storage: Table=orders":         "none",
				"storage: table=Orders":         "none",
				"storage: table=":               "none",
				"storage:":                      "none",
				"elsewhere: table=orders":       "none",
				"storage: table=orders table=x": "none",
			},
		},
		"nested, with and without a value": {
			`
domain: post
descriptors:
  - key: kind
    value: advert
    descriptors:
      - key: to
        rate_limit: {unit: day, requests_per_unit: 4}
  - key: to
    rate_limit: {unit: day, requests_per_unit: 90}
`, map[string]string{
				"post: kind=advert to=anna": "4/day anna",
				"post: kind=advert to=bert": "4/day bert",
				"post: to=anna":             "90/day anna",
				"post: kind=advert":         "none",
				"post: kind=letter to=anna": "none",
				"post: to=anna kind=advert": "none",
				"post: to=":                 "90/day ",
			},
		},
		"a value before the key alone": {
			`
domain: edge
descriptors:
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 12}
  - key: remote_address
    value: 192.0.2.7
    rate_limit: {unit: second, requests_per_unit: 0}
`, map[string]string{
				"edge: remote_address=192.0.2.1": "12/second 192.0.2.1",
				"edge: remote_address=192.0.2.7": "0/second ",
			},
		},
		"as deep as the descriptor": {
			`
domain: deep
descriptors:
  - key: a
    value: x
    rate_limit: {unit: hour, requests_per_unit: 1}
    descriptors:
      - key: b
        rate_limit: {unit: hour, requests_per_unit: 2}
        descriptors:
          - {key: c, value: z}
          - {key: d, rate_limit: {unit: hour, requests_per_unit: 3}}
`, map[string]string{
				"deep: a=x":         "1/hour ",
				"deep: a=x b=y":     "2/hour y",
				"deep: a=x b=y c=z": "none",
				"deep: a=x b=y d=z": "3/hour y|z",
				"deep: a=x b=| d=z": `3/hour \||z`,
				"deep: a=x d=z":     "none",
				"deep: b=y":         "none",
				"deep: a=x a=x":     "none",
				"deep: a=x b=y e=1": "none",
			},
		},
		"a value that leads nowhere is not tried without": {
			`
domain: nowhere
descriptors:
  - key: a
    value: x
    descriptors: [{key: b, value: only, rate_limit: {unit: minute, requests_per_unit: 1}}]
  - key: a
    descriptors: [{key: b, rate_limit: {unit: minute, requests_per_unit: 2}}]
`, map[string]string{
				"nowhere: a=x b=only":  "1/minute ",
				"nowhere: a=x b=other": "none",
				"nowhere: a=y b=other": "2/minute y|other",
			},
		},
		"unlimited": {
			`
domain: inside
descriptors:
  - {key: directory, rate_limit: {unlimited: true}}
  - {key: cloud, rate_limit: {unit: minute, requests_per_unit: 70}}
`, map[string]string{
				"inside: directory=any": "unlimited",
				"inside: cloud=any":     "70/minute any",
			},
		},
		"wildcards": {
			`
domain: wild
descriptors:
  - {key: name, value: "ab*", rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: name, value: "a*", rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: name, value: "abc*", rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: name, value: "abcd", rate_limit: {unit: minute, requests_per_unit: 4}}
  - {key: name, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: path, value: "/v1/*/items", rate_limit: {unit: minute, requests_per_unit: 6}}
  - {key: path, value: "/v1/*/items/*/notes", rate_limit: {unit: minute, requests_per_unit: 7}}
  - {key: host, value: "*.example", rate_limit: {unit: minute, requests_per_unit: 8}}
  - {key: all, value: "*", rate_limit: {unit: minute, requests_per_unit: 9}}
  - {key: twice, value: "x*x", rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: thrice, value: "y*x*x", rate_limit: {unit: minute, requests_per_unit: 11}}
`, map[string]string{
				"wild: name=ab":                      "1/minute ab",
				"wild: name=abc":                     "1/minute abc", // the first of the file
				"wild: name=abcd":                    "4/minute ",
				"wild: name=abcde":                   "1/minute abcde",
				"wild: name=ax":                      "2/minute ax",
				"wild: name=abc*":                    "3/minute abc*",
				"wild: name=b":                       "5/minute b",
				"wild: name=":                        "5/minute ",
				"wild: path=/v1/anna/items":          "6/minute /v1/anna/items",
				"wild: path=/v1/anna/bert/items":     "6/minute /v1/anna/bert/items",
				"wild: path=/v1//items":              "6/minute /v1//items",
				"wild: path=/v1/items":               "none",
				"wild: path=/v1/anna/other":          "none",
				"wild: path=/v1/anna/items/1/notes":  "7/minute /v1/anna/items/1/notes",
				"wild: path=/v1/anna/items/1/notes/": "none",
				"wild: host=a.example":               "8/minute a.example",
				"wild: host=.example":                "8/minute .example",
				"wild: host=example":                 "none",
				"wild: all=":                         "9/minute ",
				"wild: twice=x":                      "none",
				"wild: twice=xx":                     "10/minute xx",
				"wild: thrice=yx":                    "none",
				"wild: thrice=yxx":                   "11/minute yxx",
			},
		},
		"wildcards below others": {
			`
domain: below
descriptors:
  - key: a
    value: "x*"
    descriptors:
      - {key: b, value: "y*", rate_limit: {unit: week, requests_per_unit: 1}}
      - {key: b, rate_limit: {unit: month, requests_per_unit: 2}}
`, map[string]string{
				"below: a=x1 b=y1": "1/week x1|y1",
				"below: a=x1 b=z1": "2/month x1|z1",
				"below: a=y1 b=y1": "none",
			},
		},
		"one counter for all that a wildcard matches": {
			`
domain: shared
descriptors:
  - {key: file, value: "files/*", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: own, value: "files/*", share_threshold: false, rate_limit: {unit: hour, requests_per_unit: 11}}
  - key: route
    value: "api/*"
    share_threshold: true
    value_to_metric: true
    descriptors:
      - {key: method, rate_limit: {unit: year, requests_per_unit: 12}}
`, map[string]string{
				"shared: file=files/a":           "10/hour ",
				"shared: file=files/b":           "10/hour ",
				"shared: own=files/a":            "11/hour files/a",
				"shared: route=api/1 method=GET": "12/year GET",
				"shared: route=api/2 method=GET": "12/year GET",
				"shared: route=api/2":            "none",
			},
		},
		"values that are no text for YAML, anchors and merges": {
			`
domain: 7
descriptors:
  - key: code
    value: 404
    rate_limit: &hourly {unit: hour, requests_per_unit: 1_000}
  - key: code
    value: 1.10
    rate_limit: {<<: *hourly, requests_per_unit: 2}
  - {key: code, value: yes, rate_limit: *hourly}
  - {key: code, value: ~, rate_limit: {unit: hour, requests_per_unit: 4, name: ~, replaces: [], unlimited: no}}
  - {key: 5, value: "", descriptors: ~, rate_limit: ~}
`, map[string]string{
				"7: code=404":  "1000/hour ",
				"7: code=1.10": "2/hour ",
				"7: code=1.1":  "4/hour 1.1",
				"7: code=yes":  "1000/hour ",
				"7: 5=6":       "none",
			},
		},
		"names that look alike": {
			`
domain: d
descriptors:
  - {key: a, value: b_c, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: a_b, value: c, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: a_b_c, rate_limit: {unit: hour, requests_per_unit: 3}}
`, map[string]string{
				"d: a=b_c":   "1/hour ",
				"d: a_b=c":   "2/hour ",
				"d: a_b_c=":  "3/hour ",
				"d: a_b_c=x": "3/hour x",
				"d: a_b=":    "none",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := parse(t, ratelimitconfig.Options{}, c.file)
			for asked, want := range c.want {
				domain, text, _ := strings.Cut(asked, ":")
				var m ratelimitconfig.Match
				config.Match(&m, domain, entries(text), ratelimitconfig.Override{}, 1)
				if got := told(&m); got != want {
					t.Errorf("%s: %s, want %s", asked, got, want)
				}
			}
		})
	}
}

// TestOverride: the limit that a descriptor brings holds in each domain there is, whatever the tree says, with a counter for each
// descriptor and unit.
func TestOverride(t *testing.T) {
	synctest.Test(t, testOverride) // so that no hour begins meanwhile
}

func testOverride(t *testing.T) {
	t.Helper()
	c := parse(t, ratelimitconfig.Options{}, `
domain: d
descriptors: [{key: a, rate_limit: {unlimited: true}}]
`)
	s := serve(t, c)
	hour := ratelimitconfig.Override{RequestsPerUnit: 2, Unit: ratelimitconfig.Hour}
	for _, step := range []struct {
		domain, descriptor string
		o                  ratelimitconfig.Override
		hits               uint64
		want               bool
	}{
		{"d", "a=x", hour, 2, true},
		{"d", "a=x", hour, 1, false},
		{"d", "a=x", ratelimitconfig.Override{}, 1000, true},
		{"d", "a=y", hour, 1, true},
		{"d", "b=x c=y", hour, 1, true},
		{"d", "b=x c=y", hour, 1, true},
		{"d", "b=x c=y", hour, 1, false},
		{"d", "b=x", hour, 1, true},
		{"d", "a=x", ratelimitconfig.Override{RequestsPerUnit: 2, Unit: ratelimitconfig.Day}, 2, true},
		{"d", "a=x", ratelimitconfig.Override{RequestsPerUnit: 5, Unit: ratelimitconfig.Hour}, 3, true}, // more of the same window
		{"d", "a=x", ratelimitconfig.Override{RequestsPerUnit: 2, Unit: ratelimitconfig.Hour, UnitMultiplier: 3}, 2, true},
		{"d", "a=x", ratelimitconfig.Override{RequestsPerUnit: 2, Unit: ratelimitconfig.Hour, UnitMultiplier: 3}, 1, false},
		{"d", "a=x", ratelimitconfig.Override{RequestsPerUnit: 0, Unit: ratelimitconfig.Second}, 1, false},
		{"d", "a=x", ratelimitconfig.Override{RequestsPerUnit: 0, Unit: ratelimitconfig.Second}, 0, true},
		{"unknown", "a=x", ratelimitconfig.Override{RequestsPerUnit: 0, Unit: ratelimitconfig.Hour}, 1, true},
	} {
		if ok, d := s.take(t, step.domain, step.descriptor, step.hits, step.o); ok != step.want {
			t.Errorf("%+v: %v, %+v", step, ok, d)
		}
	}
	var m ratelimitconfig.Match
	c.Match(&m, "d", entries("k|=1=a=b"), hour, 1)
	if l := m.Limit; m.Outcome != ratelimitconfig.Limited || l.RequestsPerUnit != 2 || l.Unit != ratelimitconfig.Hour || l.Name != "" ||
		l.Shadow || string(m.Key) != `d|hour|k\|=1=a=b` {
		t.Errorf("%+v, %s", m, m.Key)
	}
}

// TestReplace: a limit replaces another one in requests to which both apply, in whatever order.
func TestReplace(t *testing.T) {
	c := parse(t, ratelimitconfig.Options{}, `
domain: d
descriptors:
  - {key: a, rate_limit: {name: general, unit: second, requests_per_unit: 5}}
  - {key: b, rate_limit: {name: special, replaces: [{name: general}], unit: second, requests_per_unit: 10}}
  - {key: c, rate_limit: {replaces: [{name: special}, {name: special}], unit: second, requests_per_unit: 20}}
  - {key: free, rate_limit: {name: general, replaces: [{name: special}], unlimited: true}}
`)
	for asked, want := range map[string]string{
		"a=1":             "limited",
		"b=1":             "limited",
		"a=1, b=1":        "replaced limited",
		"b=1, a=1, a=2":   "limited replaced replaced",
		"a=1, c=1":        "limited limited",
		"a=1, b=1, c=1":   "replaced replaced limited", // one that is replaced still replaces
		"free=1, b=1":     "unlimited replaced",
		"b=1, free=1":     "replaced unlimited",
		"z=1, b=1, a=1":   "none limited replaced",
		"free=1, z=1 a=1": "unlimited none",
	} {
		words := strings.Split(asked, ", ")
		matches := make([]ratelimitconfig.Match, len(words))
		for i, text := range words {
			c.Match(&matches[i], "d", entries(text), ratelimitconfig.Override{}, 1)
		}
		ratelimitconfig.Replace(matches)
		var got []string
		for i := range matches {
			got = append(got, [...]string{"none", "unlimited", "limited", "replaced"}[matches[i].Outcome])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s, want %s", asked, got, want)
		}
	}
}
