package top

import (
	"bytes"
	"io"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// enter goes from a policy to its keys, and shows all that is known of anything else.
func (m *model) enter() tea.Cmd {
	r := m.selected()
	if r == nil {
		return nil
	}
	if m.pane != policiesPane {
		return m.details()
	}
	m.choose(r.policy)
	return m.open(keysPane)
}

// choose says whose keys are shown.
func (m *model) choose(policy string) {
	if m.policy != policy {
		m.lists[keysPane] = list{sort: panes[keysPane].sort}
	}
	m.policy = policy
}

// details shows all that is known of what is selected.
func (m *model) details() tea.Cmd {
	r := m.selected()
	if r == nil {
		return nil
	}
	switch {
	case r.about != nil:
		return m.readText(r.title, r, r.about)
	case !r.known:
		return m.say(true, unknownKey)
	default:
		return m.look(r.policy, r.key)
	}
}

// unknownKey says why nothing can be done with a key.
const unknownKey = "the name of this key is not known: a table keeps hashes, and the names of those that are refused most"

// known shows what is known of a key.
func (m *model) known(msg *detailMsg) {
	if msg.err != nil {
		m.notice, m.failed = strings.TrimPrefix(msg.err.Error(), "weir: "), true
		return
	}
	if m.mode != listMode {
		return // the operator has gone on meanwhile
	}
	about := &row{policy: msg.key.Policy, key: msg.key.Key, known: true}
	m.readText("key "+msg.key.Key, about, func(w io.Writer) { operator.WriteKey(w, terminal.Output{}, msg.key) })
}

// readText shows what is written of a row.
func (m *model) readText(title string, about *row, write func(io.Writer)) tea.Cmd {
	var b bytes.Buffer
	write(&b)
	cmd := m.read(terminal.Printable(title), strings.Split(strings.TrimRight(b.String(), "\n"), "\n"))
	of := *about // rows go and come while it is read
	m.page.about, m.page.pane = &of, m.pane
	return cmd
}
