package top

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/policy"
)

// unserved is a model of a server that there is not: it shows what the test tells it.
func unserved(t *testing.T) *model {
	t.Helper()
	client, err := operator.NewClient(operator.ClientOptions{Server: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return newModel(client)
}

// TestFiguresOfAServerThatIsGone are those that were told last, with their age, and are never 0 because nothing is known.
func TestFiguresOfAServerThatIsGone(t *testing.T) {
	t.Parallel()
	m := unserved(t)
	m.width = 200
	now := time.Date(2026, 11, 22, 3, 12, 0, 0, time.Local) //nolint:gosmopolitan // as the operator reads it
	m.clock = func() time.Time { return now }
	told := func(second time.Duration) {
		t.Helper()
		n := uint64(second/time.Second) * 40
		m.Update(overviewMsg{&operator.Overview{
			Started: began, Now: began.Add(second), Requests: 2 * n, Refused: n,
			Policies: []operator.Policy{{PolicyReport: policy.PolicyReport{Name: "login", Allowed: n, Refused: n}}},
		}})
	}
	shows := func(want ...string) {
		t.Helper()
		screen := m.View().Content
		for _, w := range want {
			if !strings.Contains(screen, w) {
				t.Errorf("no %q in\n%s", w, screen)
			}
		}
		if strings.Contains(screen, " 0 requests/s") || strings.HasPrefix(screen, "0 requests/s") {
			t.Errorf("what is not known is told as 0:\n%s", screen)
		}
	}
	told(0)
	shows("- requests/s: - allowed, - refused", "live")
	now = now.Add(time.Second)
	told(time.Second)
	shows("80.0 requests/s: 40.0 allowed, 40.0 refused", "live")

	// It says nothing any more, and then the connection is gone.
	now = now.Add(6 * time.Second)
	m.Update(tickMsg{})
	shows("NO ANSWER", "no answer since 03:12:01 (6s), and what is shown is of then", "80.0 requests/s", "40.0")
	m.Update(goneMsg{errors.New("weir: nothing listens there")})
	now = now.Add(8 * time.Second)
	m.Update(tickMsg{})
	shows("NOT CONNECTED", "no answer since 03:12:01 (14s), and what is shown is of then: nothing listens there; trying again", "80.0 requests/s")

	// It is back, with counts that cannot be compared with those before.
	now = now.Add(time.Second)
	told(0)
	shows("- requests/s: - allowed, - refused", "live")
	if screen := m.View().Content; strings.Contains(screen, "no answer") {
		t.Errorf("it is back:\n%s", screen)
	}
	now = now.Add(time.Second)
	told(time.Second)
	shows("80.0 requests/s: 40.0 allowed, 40.0 refused", "live")
}
