package match

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestIndexFindsRulesInOrder(t *testing.T) {
	x, err := newIndex([]written{
		{},
		{Methods: []string{"GET"}, Paths: []string{"/login", "/users/{id}"}},
		{Methods: []string{"POST"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &View{Method: "GET", Path: "/x/..//users/./7"}
	if got := x.Match(r, []int32{9}); !slices.Equal(got, []int32{9, 0, 1}) {
		t.Errorf("%v", got)
	}
	x.Bind(r, 1)
	if id := r.PathValue("id"); id != "7" {
		t.Errorf("%q", id)
	}
	if why := x.Why(r, 2); why != "method is GET, rule wants POST" {
		t.Error(why)
	}
}

// TestRulesThatAreAllTheSame cannot be told apart by filing them again.
func TestRulesThatAreAllTheSame(t *testing.T) {
	for _, m := range []written{
		{},
		{Headers: []field{{Name: "A", Value: "x"}}},
		{Headers: []field{{Name: "A", Value: "x"}, {Name: "B", Value: "y"}}},
		{Headers: []field{{Name: "A", Value: "*"}}},
		{Hosts: []string{"a", "*.a"}, Paths: []string{"/", "/{x}", "/{y}"}, Methods: []string{"GET"}},
	} {
		rules := make([]written, 30)
		for i := range rules {
			rules[i] = m
		}
		x, err := newIndex(rules)
		if err != nil {
			t.Fatal(err)
		}
		r := View{Method: "GET", Host: "a", Path: "/x", Header: http.Header{"A": {"x"}, "B": {"y"}}}
		if got := x.Match(&r, nil); len(got) != 30 {
			t.Errorf("%+v: %d of 30 rules", m, len(got))
		}
		r = View{Path: "x"}
		if got := x.Match(&r, nil); len(got) != 0 && len(m.Headers)+len(m.Hosts) > 0 {
			t.Errorf("%+v: %d rules for another request", m, len(got))
		}
	}
}

// TestMatchOfManyMethods has every usual method, one that is not, and rules with both.
func TestMatchOfManyMethods(t *testing.T) {
	methods := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "PURGE"}
	rules := []written{{Methods: []string{"PURGE", "GET"}, Paths: []string{"/"}}}
	for i := range methods {
		rules = append(rules, written{Methods: methods[i : i+1], Paths: []string{"/"}})
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
			if got := x.Match(&View{Method: method}, nil); !slices.Equal(got, want) {
				t.Errorf("%d rules, %q: %v, want %v", few+1, method, got, want)
			}
		}
	}
}

// TestHostilePathsAreBounded: however many segments a path has and however long they are, the tree of paths is walked no further
// than its patterns reach.
func TestHostilePathsAreBounded(t *testing.T) {
	var rules []written
	for i := range 1 << 10 { // each level has a literal and a wildcard
		var pattern []byte
		for bit := range 10 {
			if i>>bit&1 == 0 {
				pattern = append(pattern, "/x"...)
			} else {
				pattern = append(append(pattern, "/{w"...), byte('0'+bit), '}')
			}
		}
		rules = append(rules, written{Paths: []string{string(pattern)}})
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
		if got := x.Match(&View{Path: strings.Repeat("/x", segments)}, nil); len(got) != want {
			t.Errorf("%d segments: %d rules, want %d", segments, len(got), want)
		}
	}
}
