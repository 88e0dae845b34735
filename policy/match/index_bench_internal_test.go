package match

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

// shape makes rules of one shape, and requests that match them.
type shape struct {
	name    string
	rule    func(i int) written
	request func(i int) View
}

func network(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
}

var shapes = []shape{
	{
		"host", func(i int) written { return written{Hosts: []string{fmt.Sprintf("h%d.example.com", i)}} },
		func(i int) View { return View{Host: fmt.Sprintf("h%d.example.com:8080", i)} },
	},
	{
		"below", func(i int) written { return written{Hosts: []string{fmt.Sprintf("*.h%d.example.com", i)}} },
		func(i int) View { return View{Host: fmt.Sprintf("a.b.h%d.example.com", i)} },
	},
	{
		"header", func(i int) written {
			return written{Headers: []field{{Name: "X-Api-Key", Value: fmt.Sprintf("key-%d", i)}}}
		},
		func(i int) View { return View{Header: http.Header{"X-Api-Key": {fmt.Sprintf("key-%d", i)}}} },
	},
	{
		"client", func(i int) written { return written{Clients: []netip.Prefix{network(i)}} },
		func(i int) View { return View{Client: network(i).Addr().Next()} },
	},
	{
		"tenant", func(i int) written { return written{Paths: []string{fmt.Sprintf("/{tenant}/x/%d", i)}} },
		func(i int) View { return View{Path: fmt.Sprintf("/acme/x/%d", i)} },
	},
	{
		"path", func(i int) written {
			return written{Methods: []string{"POST"}, Paths: []string{fmt.Sprintf("/v1/r%d/{id}", i)}}
		},
		func(i int) View { return View{Path: fmt.Sprintf("/v1/r%d/7", i)} },
	},
	{
		"host and path", func(i int) written {
			return written{Hosts: []string{fmt.Sprintf("t%d.example.com", i/100)}, Paths: []string{fmt.Sprintf("/r%d/", i%100)}}
		},
		func(i int) View {
			return View{Host: fmt.Sprintf("t%d.example.com", i/100), Path: fmt.Sprintf("/r%d/x", i%100)}
		},
	},
}

// mixed has rules of all shapes, one after the other.
var mixed = shape{
	"mixed", func(i int) written { return shapes[i%len(shapes)].rule(i) },
	func(i int) View {
		r := shapes[i%len(shapes)].request(i)
		// What else the request has, no rule knows.
		if r.Host == "" {
			r.Host = "www.example.com"
		}
		if r.Path == "" {
			r.Path = "/index.html"
		}
		if r.Header == nil {
			r.Header = http.Header{"User-Agent": {"test"}}
		}
		if !r.Client.IsValid() {
			r.Client = netip.MustParseAddr("192.0.2.1")
		}
		return r
	},
}

func (s shape) index(tb testing.TB, n int) *Index {
	tb.Helper()
	rules := make([]written, n)
	for i := range rules {
		rules[i] = s.rule(i)
	}
	x, err := newIndex(rules)
	if err != nil {
		tb.Fatal(err)
	}
	return x
}

// requests are as many for few rules as for many, so that the requests themselves cost the same, and so many that they come to most
// of the rules, which are then not in the nearest cache.
func (s shape) requests(rules int) []View {
	random := rand.New(rand.NewPCG(1, 2))
	requests := make([]View, 1<<14)
	for i := range requests {
		requests[i] = s.request(random.IntN(rules))
		requests[i].Method = "POST"
	}
	return requests
}

// BenchmarkMatch compares few rules with many: what a request costs must not grow with their number.
func BenchmarkMatch(b *testing.B) {
	for _, s := range append([]shape{mixed}, shapes...) {
		for _, n := range []int{10, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", s.name, n), func(b *testing.B) {
				x, requests := s.index(b, n), s.requests(n)
				found := make([]int32, 0, 16)
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					v := requests[i&(1<<14-1)]
					if found = x.Match(&v, found[:0]); len(found) != 1 {
						b.Fatalf("%d rules match %+v", len(found), requests[i&(1<<14-1)])
					}
					i++
				}
			})
		}
	}
}

// BenchmarkMatchHostile is what requests cost that are made to cost much, with 10,000 rules of all shapes.
func BenchmarkMatchHostile(b *testing.B) {
	x := mixed.index(b, 10_000)
	const size = 8000 // as much as most servers take of a line
	for _, c := range []struct {
		name string
		r    View
	}{
		{"many segments", View{Path: strings.Repeat("/x", size/2)}},
		{"a long segment", View{Path: "/" + strings.Repeat("x", size)}},
		{"dots", View{Path: "/v1/" + strings.Repeat(".", size)}},
		{"many labels", View{Host: strings.Repeat("a.", size/2) + "h1.example.com"}},
		{"a long header", View{Header: http.Header{"X-Api-Key": {strings.Repeat("x", size)}}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var found []int32
			for b.Loop() {
				v := c.r
				found = x.Match(&v, found[:0])
			}
		})
	}
}
