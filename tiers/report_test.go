package tiers_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/tiers"
)

func TestTiersReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts, err := tiers.New(tiers.Options{MaxPolicies: 3})
		if err != nil {
			t.Fatal(err)
		}
		defer ts.Close()
		if got, want := ts.String(), "Policy tiers at 2000-01-01T00:00:00Z\nActive policies: 0 of 3\nChecks: 0\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		for _, a := range []*tiers.Attribute{attribute(8, 1), attribute(8, 4), attribute(128, 2), attribute(64, 2), nil, {RPS: 1}} {
			time.Sleep(time.Second)
			ts.Check(a, 1, alice)
		}
		want := `Policy tiers at 2000-01-01T00:00:06Z
Active policies: 3 of 3
Checks: 4
  RPS  Burst  Shared       Last used (UTC)
  128      2       0  2000-01-01T00:00:03Z
    8      4       0  2000-01-01T00:00:02Z
    8      1       1  2000-01-01T00:00:04Z
`
		if got := ts.String(); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
		data, err := json.Marshal(ts.Report())
		want = `{"time":"2000-01-01T00:00:06Z","active_policies":3,"max_policies":3,"checks":4,"policies":[` +
			`{"rps":128,"burst":2,"shared":0,"last_used":"2000-01-01T00:00:03Z"},` +
			`{"rps":8,"burst":4,"shared":0,"last_used":"2000-01-01T00:00:02Z"},` +
			`{"rps":8,"burst":1,"shared":1,"last_used":"2000-01-01T00:00:04Z"}]}`
		if err != nil || string(data) != want {
			t.Errorf("%s, %v\nwant\n%s", data, err, want)
		}
	})
}

func TestTiersReportHas32Rows(t *testing.T) {
	ts, _ := newTiers(t, wideTiers())
	for rps := 1; rps <= 5; rps++ {
		for burst := 1; burst <= 8; burst++ {
			ts.Check(attribute(rps, burst), 1, alice)
		}
	}
	r := ts.Report()
	if len(r.Policies) != 32 || r.Active != 40 || r.Policies[31].RPS != 2 || r.Policies[31].Burst != 1 {
		t.Errorf("%+v", r)
	}
	if !strings.HasSuffix(r.String(), "\nand 8 more\n") {
		t.Error(r)
	}
	if n := strings.Count(ts.String(), "\n"); n != 4+40 {
		t.Errorf("the text of all has %d lines", n)
	}
}
