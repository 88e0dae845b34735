package policy

import (
	"slices"
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
	if why := x.why(2, r); why != "method: GET is none of POST" {
		t.Error(why)
	}
}
