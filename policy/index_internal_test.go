package policy

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestIndexFindsRulesInOrder(t *testing.T) {
	x, err := newIndex([]Rule{
		{Name: "all"},
		{Name: "user", Match: Match{Methods: []string{"GET"}, Paths: []string{"/login", "/users/{id}"}}},
		{Name: "post", Match: Match{Methods: []string{"POST"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &Request{Method: "GET", Path: "/x/..//users/./7"}
	if got := x.match(r, []int32{9}); !slices.Equal(got, []int32{9, 0, 1}) {
		t.Errorf("%v", got)
	}
	x.bind(r, 1)
	if id := r.PathValue("id"); id != "7" {
		t.Errorf("%q", id)
	}
	if why := x.why(2, r); why != "method is GET, rule wants POST" {
		t.Error(why)
	}
}

// TestRulesThatAreAllTheSame cannot be told apart by filing them again.
func TestRulesThatAreAllTheSame(t *testing.T) {
	for _, m := range []Match{
		{},
		{Headers: []HeaderMatch{{Name: "A", Value: "x"}}},
		{Headers: []HeaderMatch{{Name: "A", Value: "x"}, {Name: "B", Value: "y"}}},
		{Headers: []HeaderMatch{{Name: "A", Value: "*"}}},
		{Hosts: []string{"a", "*.a"}, Paths: []string{"/", "/{x}", "/{y}"}, Methods: []string{"GET"}},
	} {
		rules := make([]Rule, 30)
		for i := range rules {
			rules[i].Match = m
		}
		x, err := newIndex(rules)
		if err != nil {
			t.Fatal(err)
		}
		r := Request{Method: "GET", Host: "a", Path: "/x", Header: http.Header{"A": {"x"}, "B": {"y"}}}
		if got := x.match(&r, nil); len(got) != 30 {
			t.Errorf("%+v: %d of 30 rules", m, len(got))
		}
		r = Request{Path: "x"}
		if got := x.match(&r, nil); len(got) != 0 && len(m.Headers)+len(m.Hosts) > 0 {
			t.Errorf("%+v: %d rules for another request", m, len(got))
		}
	}
}

// TestMatchForgetsTheRequestBefore: memory of a Request that is used again, and bytes that a caller reads the next path into, say
// nothing about the next request.
func TestMatchForgetsTheRequestBefore(t *testing.T) {
	x := one(t, Match{Hosts: []string{"a"}, Paths: []string{"/new/{id}"}})
	r := &Request{Host: "a", Path: "/new/7"}
	r.path = variables{path: r.Path, pathClean: "/old/8", host: r.Host, hostClean: "old"}
	if got := x.match(r, nil); len(got) != 1 {
		t.Error("the path or the host of an earlier request was matched")
	}
	x.bind(r, 0)
	if id := r.PathValue("id"); id != "7" {
		t.Errorf("id is %q", id)
	}
}

// TestMatchOfManyMethods has every usual method, one that is not, and rules with both.
func TestMatchOfManyMethods(t *testing.T) {
	methods := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "PURGE"}
	rules := []Rule{{Name: "some", Match: Match{Methods: []string{"PURGE", "GET"}, Paths: []string{"/"}}}}
	for i, method := range methods {
		rules = append(rules, Rule{Name: method, Match: Match{Methods: methods[i : i+1], Paths: []string{"/"}}})
	}
	for few := range rules { // with few rules they are not filed
		x, err := newIndex(rules[:few+1])
		if err != nil {
			t.Fatal(err)
		}
		for i, method := range append(methods, "", "get") {
			var want []int32
			if method == "PURGE" || method == "GET" || method == "HEAD" {
				want = append(want, 0)
			}
			if method == "HEAD" && few >= 1 {
				want = append(want, 1) // the rule of GET
			}
			if i < few {
				want = append(want, int32(i+1))
			}
			if got := x.match(&Request{Method: method}, nil); !slices.Equal(got, want) {
				t.Errorf("%d rules, %q: %v, want %v", few+1, method, got, want)
			}
		}
	}
}

// TestHostilePathsAreBounded: however many segments a path has and however long they are, the tree of paths is walked no further
// than its patterns reach.
func TestHostilePathsAreBounded(t *testing.T) {
	var rules []Rule
	for i := range 1 << 10 { // each level has a literal and a wildcard
		var pattern []byte
		for bit := range 10 {
			if i>>bit&1 == 0 {
				pattern = append(pattern, "/x"...)
			} else {
				pattern = append(append(pattern, "/{w"...), byte('0'+bit), '}')
			}
		}
		rules = append(rules, Rule{Name: string(pattern), Match: Match{Paths: []string{string(pattern)}}})
	}
	x, err := newIndex(rules)
	if err != nil {
		t.Fatal(err)
	}
	nodes := len(x.root.paths.nodes)
	if nodes != 1<<11-1 {
		t.Errorf("%d nodes", nodes)
	}
	for segments, want := range map[int]int{9: 0, 10: 1 << 10, 11: 0, 100_000: 0} {
		if got := x.match(&Request{Path: strings.Repeat("/x", segments)}, nil); len(got) != want {
			t.Errorf("%d segments: %d rules, want %d", segments, len(got), want)
		}
	}
}
