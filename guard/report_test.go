package guard_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/guard"
	"github.com/weirhq/weir/manualclock"
)

// pressed is a guard with endpoints under all kinds of pressure.
func pressed(t *testing.T) (*guard.Guard, *manualclock.Clock) {
	t.Helper()
	g, clock := on(t, func(o *guard.Options) {
		o.Name, o.HardLockout, o.MaxSoftViolations, o.LockoutFactor = "door", time.Minute, 2, 2
	})
	for _, endpoint := range []string{"192.0.2.20", "192.0.2.9", "2001:db8::1"} { // blocked, with equal deficits
		drain(t, g, endpoint, 12)
		check(t, g, endpoint)
		says(t, g, endpoint, weir.ReasonHardLockout, time.Minute)
	}
	clock.Advance(time.Second)
	drain(t, g, "192.0.2.5", 12) // a larger deficit, but not blocked
	check(t, g, "192.0.2.5")
	drain(t, g, "192.0.2.3", 12)
	drain(t, g, "192.0.2.4", 3)
	drain(t, g, "/run/b.sock", 3)
	drain(t, g, "/run/a.sock", 3)
	return g, clock
}

func TestGuardReportOrder(t *testing.T) {
	g, clock := pressed(t)
	clock.Advance(500 * ms) // 3 tokens: balances are as of now
	r := g.Report()
	var order []string
	for _, e := range r.Top {
		order = append(order, fmt.Sprintf("%s %v %d", e.Endpoint, e.Blocked, e.Credit))
	}
	want := []string{
		"192.0.2.9 true 9", "192.0.2.20 true 9", "2001:db8::/64 true 9", // addresses in order, not texts
		"192.0.2.3 false 3", "192.0.2.5 false 3",
		"192.0.2.4 false 12", "/run/a.sock false 12", "/run/b.sock false 12",
	}
	if !reflect.DeepEqual(order, want) {
		t.Errorf("%q, want %q", order, want)
	}
	if e, want := r.Top[0], (guard.Endpoint{
		Endpoint: "192.0.2.9", Blocked: true, BlockedSeconds: 58.5, Credit: 9, Deficit: 3, Lockouts: 1, SeenSecondsAgo: 1.5, Refusals: 2,
	}); e != want {
		t.Errorf("%+v, want %+v", e, want)
	}
	if e := r.Top[4]; e.Violations != 1 || e.Deficit != 9 || e.Refusals != 1 || e.BlockedSeconds != 0 {
		t.Errorf("%+v", e)
	}
	if r.HardBlockedCount != 3 || r.TrackedEndpoints != 8 {
		t.Errorf("%+v", r)
	}
	clock.Advance(58500 * ms)
	if r := g.Report(); r.HardBlockedCount != 0 || r.Top[0].Blocked || r.Top[0].Violations != 0 {
		t.Errorf("%+v", r)
	}
}

func TestGuardReportText(t *testing.T) {
	g, _ := pressed(t)
	text := g.Report().String()
	for _, line := range []string{
		"CapacityTokens:       12", "RefillPerSecond:      6", "TokenScale:           1000", "Shards:               32",
		"HardLockoutSeconds:   60", "StaleEntrySeconds:    300", "CleanupIntervalSecs:  120", "MaxTrackedEndpoints:  10000",
		"TrackedEndpoints:     8", "HardBlockedCount:     3", "Guard:                door", "Top 20 endpoints by pressure:",
		"192.0.2.9      yes      59.000          6       6.000    0           1         1.000           2",
		"192.0.2.5      no       0.000           0       12.000   1           0         0.000           1",
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
	empty, _ := on(t, nil)
	if text := empty.Report().String(); !strings.HasSuffix(text, "by pressure:\n(none)\n") || !strings.HasPrefix(text, "Guard:                (unnamed)\n") {
		t.Errorf("%s", text)
	}
}

// TestGuardReportNamesEndNoLine has endpoints whose names look like rows of the report, or change the screen.
func TestGuardReportNamesEndNoLine(t *testing.T) {
	g, _ := on(t, nil)
	for _, name := range []string{"a\n192.0.2.9  yes", "b\tyes\t60", "c\x1b[2J", "d\u202e", "e\xff", "f  yes  60", "/run/g h.sock"} {
		check(t, g, name)
	}
	text := g.Report().String()
	if _, table, _ := strings.Cut(text, "by pressure:\n"); strings.Count(table, "\n") != 8 {
		t.Errorf("not 8 lines in\n%s", text)
	}
	for _, name := range []string{
		`"a\n192.0.2.9  yes"`, `"b\tyes\t60"`, `"c\x1b[2J"`, `"d\u202e"`, `"e\xff"`, `"f  yes  60"`, "/run/g h.sock",
	} {
		if row := fmt.Sprintf("\n%-21sno ", name); !strings.Contains(text, row) {
			t.Errorf("no row %q in\n%s", row, text)
		}
	}
	if r := g.Report(); r.Top[0].Endpoint != "/run/g h.sock" || r.Top[1].Endpoint != "a\n192.0.2.9  yes" {
		t.Errorf("%+v", r.Top)
	}
}

// TestGuardReportStructured has all that the text has, under names of its own.
func TestGuardReportStructured(t *testing.T) {
	g, _ := pressed(t)
	r := g.Report()
	encoded, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back guard.Report
	if err := json.Unmarshal(encoded, &back); err != nil || !reflect.DeepEqual(back, r) || back.String() != r.String() {
		t.Errorf("%+v, %v, want %+v", back, err, r)
	}
	for _, name := range []string{
		`"capacity_tokens":12`, `"refill_per_second":6`, `"token_scale":1000`, `"shards":32`, `"hard_lockout_seconds":60`,
		`"stale_entry_seconds":300`, `"cleanup_interval_secs":120`, `"max_tracked_endpoints":10000`, `"tracked_endpoints":8`,
		`"hard_blocked_count":3`, `"endpoint":"192.0.2.9"`, `"blocked":true`, `"credit":6`,
	} {
		if !strings.Contains(string(encoded), name) {
			t.Errorf("%s is not in %s", name, encoded)
		}
	}
}

// TestGuardReportShowsTwenty has more endpoints than names are kept, and more than are shown.
func TestGuardReportShowsTwenty(t *testing.T) {
	const endpoints = 300
	g, _ := on(t, func(o *guard.Options) { o.MinReportCapacity, o.CapacityTokens = 64, endpoints })
	for i := range endpoints {
		drain(t, g, address6(i).String(), 1+i)
	}
	r := g.Report()
	if len(r.Top) != 20 {
		t.Fatalf("%d endpoints", len(r.Top))
	}
	for i, e := range r.Top {
		if e.Credit != int64(i) || !strings.HasPrefix(e.Endpoint, "(unnamed) ") && e.Endpoint != address6(endpoints-1-i).String()+"/64" {
			t.Errorf("%d: %+v", i, e)
		}
	}
}

// TestGuardReportNamesTheRefused has a flood of endpoints, each of which is refused once, and some that are refused often.
func TestGuardReportNamesTheRefused(t *testing.T) {
	g, clock := on(t, func(o *guard.Options) {
		slowGuard(o)
		o.MinReportCapacity, o.MaxSoftViolations, o.HardLockout = 64, 20, time.Hour
	})
	const heavy = 4 // more could share a set, which has room for four names
	for i := range 9000 {
		_, _ = g.CheckAddr(address6(i))
		for j := range heavy {
			if i%4 == 0 {
				check(t, g, fmt.Sprintf("192.0.2.%d", j))
			}
		}
		clock.Advance(ms)
	}
	r := g.Report()
	if r.HardBlockedCount != heavy {
		t.Errorf("%d are locked out", r.HardBlockedCount)
	}
	for j, e := range r.Top[:heavy] {
		if !e.Blocked || e.Endpoint != fmt.Sprintf("192.0.2.%d", j) || e.Refusals < 2000 {
			t.Errorf("%+v", e)
		}
	}
}

// TestGuardReportShowsOperations names what is limited.
func TestGuardReportShowsOperations(t *testing.T) {
	g, _ := on(t, nil)
	_, _ = g.CheckOperation(7, address6(1))
	if r := g.Report(); len(r.Top) != 1 || r.Top[0].Endpoint != "2001:0:0:1::/64 operation 7" {
		t.Errorf("%+v", r.Top)
	}
}

// TestGuardKeepsNoPartOfTheCallersText changes the text of an endpoint after the call.
func TestGuardKeepsNoPartOfTheCallersText(t *testing.T) {
	g, _ := on(t, nil)
	packet := strings.Repeat("x", 1<<20) + "/run/a.sock"
	check(t, g, packet[1<<20:])
	if r := g.Report(); r.Top[0].Endpoint != "/run/a.sock" {
		t.Errorf("%+v", r.Top)
	}
}
