package checkapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// TestChecksOfWhatWasSpentBind: each use costs 600 of 1000 permits an hour, which is told when it is over. The third look is refused
// until what is owed has come back, also where what was spent is told in a batch.
func TestChecksOfWhatWasSpentBind(t *testing.T) {
	const (
		look  = `{"policy":"tokens","key":"KEY","cost":0}`
		spent = `{"policy":"tokens","key":"KEY","cost":600,"charge":"afterwards"}`
	)
	for name, tell := range map[string]func(t *testing.T, h http.Handler) int{
		"check": func(_ *testing.T, h http.Handler) int { return check(h, spent).Code },
		"batch": func(t *testing.T, h http.Handler) int {
			t.Helper()
			r, _ := batch(t, h, `{"checks":[`+spent+`]}`)
			return r.Code
		},
		"atomic batch": func(t *testing.T, h http.Handler) int {
			t.Helper()
			r, _ := batch(t, h, `{"atomic":true,"checks":[`+spent+`]}`)
			return r.Code
		},
	} {
		clock := manualclock.New(0)
		h, _ := newConfigured(t, "version: 1\npolicies: {tokens: {limit: 1000/h, key: client.ip}}\nrules: []\n", policy.EngineOptions{Clock: clock})
		served := 0
		for range 10 {
			if check(h, look).Code != http.StatusOK {
				continue
			}
			served++
			if got, want := tell(t, h), map[int]int{1: 200, 2: 429}[served]; got != want {
				t.Errorf("%s: %d: status %d, want %d", name, served, got, want)
			}
		}
		clock.Advance(201*time.Hour/1000 - 1)
		if got := check(h, look).Code; served != 2 || got != http.StatusTooManyRequests {
			t.Errorf("%s: %d uses of 600 were served with 1000, want 2; status %d before what is owed has come back", name, served, got)
		}
		clock.Advance(1)
		if got := check(h, look).Code; got != http.StatusOK {
			t.Errorf("%s: status %d when what is owed has come back", name, got)
		}
	}
}
