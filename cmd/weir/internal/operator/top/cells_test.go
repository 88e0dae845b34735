package top

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/policy"
)

// TestCellsStandUnderTheirHeads: each number of a pane is another one, so that none can stand in the column of another.
func TestCellsStandUnderTheirHeads(t *testing.T) {
	m := &model{
		now: &operator.Overview{Policies: []operator.Policy{{
			PolicyReport: policy.PolicyReport{Name: "login", Allowed: 11, Refused: 12, Queued: 13, Keys: 14, Locked: 15},
			Limits:       []operator.Limit{{Name: "1m", Holds: "5/min"}},
		}}},
		rates: map[string]rates{"login": {requests: 16, allowed: 17, refused: 18}},
	}
	rows := map[int]row{
		policiesPane: policyRows(m)[0],
		keysPane: keyRow(&operator.Key{
			Policy: "login", Key: "ann", Named: true, LockedFor: 21, Override: &operator.Override{Unlimited: true, For: 22},
			Limits: []operator.KeyLimit{{
				Name: "1m", Holds: "5/min", Limit: 23, Remaining: 24, RetryAfter: 25, ResetAfter: 26, Queued: 27, Waiters: 28, Refused: 29,
			}},
		}),
		lockoutsPane: lockoutRow(&operator.Lockout{Policy: "login", Key: "ann", For: 31}),
		overridesPane: overrideRow(&operator.Override{
			Policy: "login", Key: "ann", Unlimited: true, For: 41, By: "bob", Reason: "because",
		}),
		refusalsPane: refusalRow(&operator.Refusal{
			ID: "0123", Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Method: "GET", Path: "/a", RetryAfter: 51, Binding: 1,
			Limits: []operator.RefusedLimit{{Policy: "other", Key: "eve"}, {Policy: "login", Limit: "1m", Key: "ann"}},
		}),
	}
	for pane, want := range map[int]map[string]string{
		policiesPane: {
			policyHead: "login", "allowed/s": "17", "refused/s": "18", "queued": "13", "keys": "14", "locked out": "15", "mode": "enforce",
			"refused": "12", "allowed": "11", "limits": "5/min",
		},
		keysPane: {
			keyHead: "ann", "remaining": "24", "of": "23", "refused": "29", "queued": "27", "retry": "25s", "locked out": "21s", "override": "unlimited",
			"limit": "1m 5/min",
		},
		lockoutsPane:  {"for": "31s", policyHead: "login", keyHead: "ann"},
		overridesPane: {"for": "41s", policyHead: "login", keyHead: "ann", "instead": "unlimited", "by": "bob", "why": "because"},
		refusalsPane: {
			"when": "03:04:05.000", "limit": "login/1m", keyHead: "ann", "retry": "51s", "request": "GET /a", "refusal": "0123",
		},
	} {
		p := &panes[pane]
		cells := rows[pane].cells
		if len(p.columns) != len(want) || len(cells) != len(want) {
			t.Fatalf("%s: %+v", p.name, cells)
		}
		for i, c := range p.columns {
			if got := cells[i].text; got != want[c.head] && strings.TrimSuffix(got, ".0") != want[c.head] {
				t.Errorf("%s: %s is %q, want %q", p.name, c.head, got, want[c.head])
			}
		}
	}
}

// TestChangesAreThoseAskedFor: what is confirmed is what is asked of the server.
func TestChangesAreThoseAskedFor(t *testing.T) {
	f := newFake(t)
	client, err := operator.NewClient(operator.ClientOptions{Server: f.server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	m := newModel(client)
	m.pane, m.now = overridesPane, &operator.Overview{}
	m.rows = []row{{id: "x", policy: "login", key: "ann", known: true}}
	for path, begin := range map[string]func(){
		operator.UnlockPath: func() { m.unlock() }, operator.RestorePath: func() { m.restore() },
	} {
		f.mu.Lock()
		f.posted = nil
		f.mu.Unlock()
		begin()
		if _, err := m.form.send(t.Context(), []string{"why"}); err != nil {
			t.Error(err)
		}
		if done := f.done(); len(done) != 1 || done[0] != path+" login ann why" {
			t.Errorf("%s: %q", path, done)
		}
	}
}

// TestNarrow: columns that have no room are left out whole and named, as a part of a number would be taken for another one.
func TestNarrow(t *testing.T) {
	t.Parallel()
	m := unserved(t)
	told := &operator.Overview{Started: began, Now: began}
	for _, name := range []string{"a-policy-with-a-name-that-can-be-cut", "b"} {
		told.Policies = append(told.Policies, operator.Policy{
			PolicyReport: policy.PolicyReport{Name: name, Allowed: 123_456_789, Refused: 987_654_321},
		})
	}
	m.Update(overviewMsg{told})
	for _, c := range []struct {
		width         int
		want, without string
	}{
		{160, "987,654,321", "no room"},
		{80, "\nno room for refused, allowed, limits; d shows details\n", "987"},
		{60, "\nno room for locked out, mode, refused, allowed, limits; d s…\n", "123"},
		{1, "", "123"},
	} {
		m.width = c.width
		if screen := m.View().Content; !strings.Contains(screen, c.want) || strings.Contains(screen, c.without) {
			t.Errorf("%d columns: want %q and no %q in\n%s", c.width, c.want, c.without, screen)
		}
	}
	out := terminal.Output{Interactive: true, Width: 80}
	m.paint = plain(out)
	if frame := m.frame(out); !strings.Contains(frame, "\nno room for refused, allowed, limits\n") || strings.Contains(frame, "987") {
		t.Errorf("one frame in a terminal:\n%s", frame)
	}
	if frame := m.frame(terminal.Output{Width: 80}); !strings.Contains(frame, "987,654,321") || strings.Contains(frame, "no room") {
		t.Errorf("one frame in a pipe:\n%s", frame)
	}
}
