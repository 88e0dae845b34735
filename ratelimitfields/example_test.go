package ratelimitfields_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/weirhq/weir/ratelimitfields"
)

// A server that decides by itself writes the same fields.
func ExampleHeaders() {
	policies, err := ratelimitfields.NewPolicies(
		ratelimitfields.Policy{Name: "burst", Quota: 100, Window: time.Minute},
		ratelimitfields.Policy{Name: "daily", Quota: 1000, Window: 24 * time.Hour},
	)
	if err != nil {
		panic(err)
	}
	header := http.Header{}
	headers := ratelimitfields.Headers{Fields: ratelimitfields.RateLimit11 | ratelimitfields.XRateLimit}
	headers.SetRefused(header, policies, 10*time.Hour,
		ratelimitfields.State{Policy: 1, Remaining: 0, Reset: 20 * time.Hour},
		ratelimitfields.State{Policy: 0, Remaining: 50, Reset: 30 * time.Second})
	for _, name := range []string{"Ratelimit", "Ratelimit-Policy", "Retry-After", "X-Ratelimit-Remaining"} {
		fmt.Printf("%s: %s\n", name, header.Get(name))
	}
	// Output:
	// Ratelimit: "daily";r=0;t=36000, "burst";r=50;t=30
	// Ratelimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400
	// Retry-After: 36000
	// X-Ratelimit-Remaining: 0
}

// What a response tells, for clients that decide themselves.
func ExampleParse() {
	told := ratelimitfields.Parse(http.Header{
		"Ratelimit":        {`"burst";r=50;t=30, "daily";r=0;t=36000`},
		"Ratelimit-Policy": {`"burst";q=100;w=60, "daily";q=1000;w=86400`},
	}, time.Now())
	for _, l := range told.Limits {
		fmt.Println(l.Name, l.Remaining, "of", l.Limit, l.Reset)
	}
	// Output:
	// burst 50 of 100 30s
	// daily 0 of 1000 10h0m0s
}
