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
		data   data
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

// data are the answers that panes are made of.
type data struct {
	keys      []operator.Key
	lockouts  []operator.Lockout
	overrides []operator.Override
	refusals  operator.Refusals
}

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

// How many rows are asked for.
const (
	mostKeys     = 1000
	mostLockouts = 1000
	mostRefusals = 500
)

// fetch asks for the rows of a pane.
func fetch(ctx context.Context, c *operator.Client, pane int, policy string) (d data, err error) {
	switch pane {
	case keysPane:
		err = c.Get(ctx, operator.KeysPath, url.Values{"policy": {policy}, "n": {strconv.Itoa(mostKeys)}}, &d.keys)
	case lockoutsPane:
		err = c.Get(ctx, operator.LockoutsPath, url.Values{"n": {strconv.Itoa(mostLockouts)}}, &d.lockouts)
	case overridesPane:
		err = c.Get(ctx, operator.OverridesPath, nil, &d.overrides)
	case refusalsPane:
		err = c.Get(ctx, operator.RefusalsPath, url.Values{"n": {strconv.Itoa(mostRefusals)}}, &d.refusals)
	}
	return d, err
}

// refresh asks for the rows of the pane that is shown, if they are not asked for already.
func (m *model) refresh() tea.Cmd {
	pane, policy := m.pane, m.keysOf()
	if pane == policiesPane || m.asking || pane == keysPane && policy == "" {
		return nil
	}
	m.asking = true
	ctx, client := m.ctx, m.client
	return func() tea.Msg {
		d, err := fetch(ctx, client, pane, policy)
		return rowsMsg{pane, policy, d, err}
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
