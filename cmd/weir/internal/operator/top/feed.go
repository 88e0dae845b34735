package top

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

// What the model is told.
type (
	overviewMsg struct{ overview *operator.Overview }
	goneMsg     struct{ err error }
	// tickMsg comes each second, as what is shown becomes older.
	tickMsg struct{}
	// rowsMsg has the rows of a pane, or why there are none.
	rowsMsg struct {
		pane   int
		policy string // of keys
		rows   []row
		err    error
	}
	// detailMsg has what is known of one key.
	detailMsg struct {
		key *operator.Key
		err error
	}
	// overrideMsg has what is known of a key that is to be overridden, and where it was asked for.
	overrideMsg struct {
		key   *operator.Key
		err   error
		from  mode
		about *row
	}
	// doneMsg is what has become of an action.
	doneMsg struct {
		text string
		err  error
	}
)

const (
	shortestPause = 250 * time.Millisecond
	longestPause  = 4 * time.Second
	overviewEvent = "overview"
)

// follow sends the overviews of a server until ctx ends, and tells when the server has gone.
func follow(ctx context.Context, c *operator.Client, send func(tea.Msg)) {
	pause := shortestPause
	for ctx.Err() == nil {
		err := c.Events(ctx, func(e operator.Event) bool {
			if e.Name != overviewEvent {
				return true
			}
			o := new(operator.Overview)
			if err := json.Unmarshal(e.Data, o); err == nil {
				pause = shortestPause
				send(overviewMsg{o})
			}
			return true
		})
		if ctx.Err() != nil {
			return
		}
		send(goneMsg{err})
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// tick sends a tickMsg in a second.
func tick() tea.Cmd { return tea.Tick(time.Second, func(time.Time) tea.Msg { return tickMsg{} }) }

// fetched asks a page for n rows, of a policy if it is given.
func fetched[T any](path string, n int, of func(*T) row) func(context.Context, *operator.Client, string) ([]row, error) {
	return func(ctx context.Context, c *operator.Client, policy string) ([]row, error) {
		query := url.Values{}
		if n > 0 {
			query.Set("n", strconv.Itoa(n))
		}
		if policy != "" {
			query.Set("policy", policy)
		}
		var all []T
		err := c.Get(ctx, path, query, &all)
		return rowsOf(all, of), err
	}
}

// rowsOf makes a row of each.
func rowsOf[T any](all []T, of func(*T) row) []row {
	rows := make([]row, 0, len(all))
	for i := range all {
		rows = append(rows, of(&all[i]))
	}
	return rows
}

// refresh asks for the rows of the pane that is shown, if they are not asked for already.
func (m *model) refresh() tea.Cmd {
	pane, policy := m.pane, m.policyOf()
	if pane == policiesPane || m.asking || pane == keysPane && policy == "" {
		return nil
	}
	m.asking = true
	ctx, client := m.ctx, m.client
	return func() tea.Msg {
		rows, err := panes[pane].fetch(ctx, client, policy)
		return rowsMsg{pane, policy, rows, err}
	}
}

// look asks for the state of a key.
func (m *model) look(policy, key string) tea.Cmd {
	ctx, client := m.ctx, m.client
	return func() tea.Msg {
		k, err := client.Key(ctx, policy, key)
		return detailMsg{&k.Value, err}
	}
}
