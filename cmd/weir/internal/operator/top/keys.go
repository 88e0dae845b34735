package top

import (
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
)

// binding is what some keys do.
type binding struct {
	// keys are as bubbletea names them, and shown is how help shows them.
	keys  []string
	shown string
	// what says what they do, in modes.
	what  string
	modes mode
	do    func(m *model) tea.Cmd
	// short is for the last line of the screen, "" if they are not there.
	short string
}

// end is further than any list is long.
const end = 1 << 30

// Keys that are in several bindings, as bubbletea names them.
const (
	ctrlC    = "ctrl+c"
	enterKey = "enter"
	escKey   = "esc"
)

// bindings are all keys. Help lists them, and so does docs/top.md.
var bindings []binding

func init() { //nolint:gochecknoinits // help is one of the bindings, and lists them
	bindings = []binding{
		{[]string{"?", "f1"}, "? F1", "list the keys", listMode, (*model).help, "help"},
		{[]string{"q", ctrlC}, "q Ctrl-C", "end", listMode | textMode, func(*model) tea.Cmd { return tea.Quit }, "quit"},
		{[]string{"1"}, "1", "policies, with what they allow and refuse in a second", listMode, to(policiesPane), ""},
		{[]string{"2"}, "2", "keys of a policy under the most pressure", listMode, to(keysPane), ""},
		{[]string{"3"}, "3", "lockouts: keys that are locked out", listMode, to(lockoutsPane), ""},
		{[]string{"4"}, "4", "overrides: keys with another limit", listMode, to(overridesPane), ""},
		{[]string{"5"}, "5", "the last refusals", listMode, to(refusalsPane), ""},
		{[]string{"tab"}, "Tab", "next pane", listMode, func(m *model) tea.Cmd { return m.goTo((m.pane + 1) % numPanes) }, ""},
		{
			[]string{"shift+tab"},
			"Shift-Tab", "pane before", listMode,
			func(m *model) tea.Cmd { return m.goTo((m.pane + numPanes - 1) % numPanes) }, "",
		},
		{[]string{"up", "k"}, "↑ k", "up", listMode | textMode, func(m *model) tea.Cmd { return m.move(-1) }, ""},
		{[]string{"down", "j"}, "↓ j", "down", listMode | textMode, func(m *model) tea.Cmd { return m.move(1) }, ""},
		{
			[]string{"pgup", "ctrl+b"},
			"PgUp Ctrl-B", "a screen up", listMode | textMode,
			func(m *model) tea.Cmd { return m.move(-m.visible()) }, "",
		},
		{
			[]string{"pgdown", "ctrl+f"},
			"PgDn Ctrl-F", "a screen down", listMode | textMode,
			func(m *model) tea.Cmd { return m.move(m.visible()) }, "",
		},
		{
			[]string{"home", "g"},
			"Home g", "to the first line", listMode | textMode,
			func(m *model) tea.Cmd { return m.move(-end) }, "",
		},
		{
			[]string{"end", "G"},
			"End G", "to the last line", listMode | textMode,
			func(m *model) tea.Cmd { return m.move(end) }, "",
		},
		{
			[]string{enterKey},
			"Enter", "keys of the policy; all that is known of the key or refusal", listMode,
			(*model).enter, "open",
		},
		{[]string{"d"}, "d", "details of the policy, the key or the refusal", listMode, (*model).details, ""},
		{[]string{"s"}, "s", "sort by the next column", listMode, (*model).sortNext, "sort"},
		{[]string{"S"}, "S", "sort the other way round", listMode, (*model).sortBack, ""},
		{[]string{"/"}, "/", "show only rows with some text", listMode, (*model).beginFilter, "filter"},
		{[]string{"p", "space"}, "p Space", "pause, or go on", listMode, (*model).pause, "pause"},
		{[]string{"u"}, "u", "unlock: let the key in again", listMode | textMode, (*model).unlock, "unlock"},
		{
			[]string{"o"},
			"o", "override: give the key another limit for a while", listMode | textMode,
			(*model).override, "override",
		},
		{
			[]string{"r"},
			"r", "restore: give the key the limits of the policy again", listMode | textMode,
			(*model).restore, "",
		},
		{[]string{escKey}, "Esc", "show all rows again; from keys back to policies", listMode, (*model).back, ""},

		{[]string{escKey, enterKey, "?", "f1", "d"}, "Esc Enter ? F1 d", "back to the list", textMode, (*model).backToList, ""},

		{[]string{enterKey}, "Enter", "keep the filter", filterMode, (*model).keepFilter, ""},
		{[]string{escKey, ctrlC}, "Esc Ctrl-C", "show all rows again", filterMode, (*model).dropFilter, ""},

		{[]string{enterKey}, "Enter", "to the next field, behind the last one to the question", formMode, (*model).nextField, ""},
		{[]string{"tab", "down"}, "Tab ↓", "to the next field", formMode, func(m *model) tea.Cmd { return m.form.move(1) }, ""},
		{
			[]string{"shift+tab", "up"},
			"Shift-Tab ↑", "to the field before", formMode,
			func(m *model) tea.Cmd { return m.form.move(-1) }, "",
		},
		{[]string{escKey, ctrlC}, "Esc Ctrl-C", "change nothing", formMode, (*model).cancelForm, ""},

		{[]string{"y"}, "y", "do it", confirmMode, (*model).confirm, ""},
		{[]string{"n", escKey, ctrlC}, "n Esc Ctrl-C", "change nothing", confirmMode, (*model).cancelForm, ""},
	}
}

// modes are the parts of help.
var modes = []struct {
	mode mode
	name string
}{
	{listMode, "In a list"},
	{textMode, "In help and details"},
	{filterMode, "While a filter is written"},
	{formMode, "While a change is written"},
	{confirmMode, "When a change is to be confirmed"},
}

func to(pane int) func(*model) tea.Cmd { return func(m *model) tea.Cmd { return m.goTo(pane) } }

// goTo shows a pane: from the policies the keys of the one that is selected.
func (m *model) goTo(pane int) tea.Cmd {
	if r := m.selected(); m.pane == policiesPane && r != nil {
		m.choose(r.policy)
	}
	return m.open(pane)
}

// press does what a key is bound to, or writes it.
func (m *model) press(k tea.KeyPressMsg) tea.Cmd {
	name := k.String()
	for i := range bindings {
		b := &bindings[i]
		if b.modes&m.mode == 0 {
			continue
		}
		if slices.Contains(b.keys, name) {
			return b.do(m)
		}
	}
	return m.write(k)
}

// write writes a key, or what was pasted, where something is written.
func (m *model) write(msg tea.Msg) (cmd tea.Cmd) {
	switch m.mode {
	case filterMode:
		m.filter, cmd = m.filter.Update(msg)
		m.lists[m.pane].filter = m.filter.Value()
	case formMode:
		input := &m.form.fields[m.form.at].input
		*input, cmd = input.Update(msg)
	case listMode, textMode, confirmMode:
	}
	return cmd
}

// help shows all keys.
func (m *model) help() tea.Cmd {
	var lines []string
	for _, part := range modes {
		if len(lines) > 0 {
			lines = append(lines, "")
		}
		lines = append(lines, part.name+":")
		for i := range bindings {
			if bindings[i].modes&part.mode != 0 {
				lines = append(lines, "  "+pad(bindings[i].shown, 18)+bindings[i].what)
			}
		}
	}
	return m.read("keys", lines)
}

// hints are the keys in the last line.
func hints() string {
	var words []string
	for i := range bindings {
		if b := &bindings[i]; b.short != "" {
			key, _, _ := strings.Cut(b.shown, " ")
			words = append(words, key+" "+b.short)
		}
	}
	return strings.Join(words, "  ")
}

// read shows text.
func (m *model) read(title string, lines []string) tea.Cmd {
	m.page = page{title: title, lines: lines}
	m.mode = textMode
	return nil
}

func (m *model) backToList() tea.Cmd {
	m.mode = listMode
	return nil
}

func (m *model) sortNext() tea.Cmd {
	l := &m.lists[m.pane]
	l.reverse = false
	if l.sort++; l.sort == len(panes[m.pane].columns) {
		l.sort = min(panes[m.pane].sort, 0) // as the server says, or by the first column
	}
	return nil
}

func (m *model) sortBack() tea.Cmd {
	l := &m.lists[m.pane]
	l.reverse = !l.reverse
	return nil
}

func (m *model) pause() tea.Cmd {
	m.paused = !m.paused
	if m.paused {
		return nil
	}
	m.base, m.rates = nil, nil // no rates over the pause
	return m.refresh()
}

func (m *model) beginFilter() tea.Cmd {
	m.mode = filterMode
	m.filter.SetValue(m.lists[m.pane].filter)
	m.filter.CursorEnd()
	return m.filter.Focus()
}

func (m *model) keepFilter() tea.Cmd {
	m.mode = listMode
	return nil
}

func (m *model) dropFilter() tea.Cmd {
	m.mode = listMode
	m.lists[m.pane].filter = ""
	return nil
}

// back drops the filter, or goes from keys to their policy.
func (m *model) back() tea.Cmd {
	l := &m.lists[m.pane]
	switch {
	case l.filter != "":
		l.filter = ""
	case m.pane != policiesPane:
		return m.open(policiesPane)
	}
	m.notice = ""
	return nil
}
