package top

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/dustin/go-humanize"
	"github.com/mattn/go-runewidth"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// The lines above the rows: title, totals, tabs, what is wrong, head; and those below: notice, keys.
const (
	linesAbove = 5
	linesBelow = 2
)

// visible is how many rows are seen at once.
func (m *model) visible() int { return max(1, m.height-linesAbove-linesBelow) }

// View implements [tea.Model].
func (m *model) View() tea.View {
	lines := []string{
		m.title(m.width), m.aged(cut(m.totals(), m.width)), m.tabs(m.width), m.wrong(m.width),
	}
	var cursor *tea.Cursor
	switch m.mode {
	case listMode, filterMode:
		l, g := &m.lists[m.pane], newGrid(panes[m.pane].columns, m.rows, m.width-len("> "))
		if out := g.leftOut(l.sort, l.reverse); out != "" && lines[len(lines)-1] == "" {
			lines[len(lines)-1] = cut(out+"; d shows details", m.width)
		}
		lines = append(lines, m.list(g)...)
	case textMode:
		lines = append(lines, m.text()...)
	case formMode, confirmMode:
		var body []string
		body, cursor = m.changing()
		lines = append(lines, body...)
	}
	below := m.below()
	room := m.height - len(below) - 1
	for len(lines) < room {
		lines = append(lines, "")
	}
	lines = lines[:max(0, min(len(lines), room))]
	last := m.paint.faint(cut(m.hint(), m.width))
	if m.mode == filterMode {
		last, cursor = m.filterLine()
	}
	lines = append(append(lines, below...), last)
	view := tea.NewView(strings.Join(lines[max(0, len(lines)-m.height):], "\n"))
	view.AltScreen = true
	view.WindowTitle = "weir top " + m.client.Server()
	view.Cursor = cursor
	return view
}

// title is the first line: which server, and whether it is there.
func (m *model) title(width int) string {
	state, shown := "live", m.paint.strong
	switch {
	case m.gone != nil:
		state, shown = "NOT CONNECTED", m.paint.alarm
	case m.silent() > 0:
		state, shown = "NO ANSWER", m.paint.alarm
	case m.paused:
		state = "PAUSED"
	case m.now != nil && m.now.Draining:
		state, shown = "SHUTTING DOWN", m.paint.alarm
	case m.now != nil && m.now.NotReady != "":
		state, shown = "NOT READY", m.paint.alarm
	}
	text := "weir " + m.client.Server()
	if m.now != nil {
		file := "no file"
		if m.now.Config.File != "" {
			file = filepath.Base(m.now.Config.File)
		}
		text = fmt.Sprintf("weir %s %s  up %s  configuration %d (%s)", terminal.Printable(m.now.Version), m.client.Server(),
			operator.Seconds(m.now.Now.Sub(m.now.Started).Seconds()), m.now.Config.Version, terminal.Printable(file))
	}
	room := max(0, width-runewidth.StringWidth(state)-2)
	return m.paint.strong(pad(cut(text, room), room)) + "  " + shown(state)
}

// aged is text of the server, which is faint if it is not that of now.
func (m *model) aged(text string) string {
	if m.silent() > 0 {
		return m.paint.faint(text)
	}
	return text
}

// totals is what all policies do together.
func (m *model) totals() string {
	if m.now == nil {
		return ""
	}
	queued, locked := int64(0), int64(0)
	for i := range m.now.Policies {
		queued += m.now.Policies[i].Queued
		locked += m.now.Policies[i].Locked
	}
	counted := rate
	if m.rates == nil { // not yet counted
		counted = unknownRate
	}
	p99 := "-"
	if m.now.Latency.Measured > 0 {
		p99 = operator.Seconds(m.now.Latency.P99)
	}
	return fmt.Sprintf("%s requests/s: %s allowed, %s refused; %s queued, %s locked out; p99 %s; %s",
		counted(m.total.requests).text, counted(m.total.allowed).text, counted(m.total.refused).text, terminal.Number(queued),
		terminal.Number(locked), p99, humanize.IBytes(m.now.Process.HeapBytes))
}

// tabs are the panes, that which is shown in brackets.
func (m *model) tabs(width int) string {
	words := make([]string, len(panes))
	for i := range panes {
		words[i] = fmt.Sprintf(" %d %s ", i+1, panes[i].name)
		if i == m.pane {
			words[i] = fmt.Sprintf("[%d %s]", i+1, panes[i].name)
		}
	}
	text := strings.Join(words, " ")
	if m.pane == keysPane {
		text += "  of " + terminal.Printable(m.keysOf())
	}
	if f := m.lists[m.pane].filter; f != "" {
		text += "  with " + terminal.Printable(f)
	}
	return cut(text, width)
}

// wrong is what the operator should know, "" if there is nothing.
func (m *model) wrong(width int) string {
	text := ""
	switch {
	case m.silent() > 0:
		text = fmt.Sprintf("no answer since %s (%s), and what is shown is of then", m.heard.Format(time.TimeOnly),
			operator.Seconds(m.silent().Truncate(time.Second).Seconds()))
		if m.gone != nil {
			text += ": " + strings.TrimPrefix(m.gone.Error(), "weir: ") + "; trying again"
		}
	case m.now != nil && m.now.NotReady != "":
		text = operator.NotReadyText(m.now.NotReady)
	case m.now != nil && m.now.Config.LastError != "":
		text = "the last reload was refused: " + strings.TrimPrefix(m.now.Config.LastError, "weir: ")
	}
	if text == "" {
		return ""
	}
	return m.paint.alarm(cut(terminal.Printable(text), width))
}

// list is the head and the rows of the pane.
func (m *model) list(g *grid) []string {
	l := &m.lists[m.pane]
	lines := []string{m.paint.strong(cut("  "+g.head(l.sort, l.reverse), m.width))}
	if len(m.rows) == 0 {
		return append(lines, wrap("  "+m.none(), m.width, "  ")...)
	}
	for i := l.top; i < min(len(m.rows), l.top+m.visible()); i++ {
		line := g.row(&m.rows[i])
		switch {
		case i == l.cursor:
			lines = append(lines, m.paint.selected(pad(cut("> "+line, m.width), m.width)))
		case m.silent() > 0:
			lines = append(lines, m.paint.faint(cut("  "+line, m.width)))
		case m.rows[i].alarm:
			lines = append(lines, m.paint.alarm(cut("  "+line, m.width)))
		default:
			lines = append(lines, cut("  "+line, m.width))
		}
	}
	return lines
}

// none says why there are no rows.
func (m *model) none() string {
	switch {
	case m.lists[m.pane].filter != "":
		return "nothing has this text: Esc shows all"
	case m.pane != policiesPane && m.of != m.pane && m.keysOf() != "":
		return "..."
	case m.pane == keysPane && m.keptElsewhere():
		return "no key was refused by this process: others are not known, as it does not keep the policy alone"
	default:
		return panes[m.pane].empty
	}
}

// keptElsewhere reports whether the policy whose keys are shown is one of which a process does not know all keys.
func (m *model) keptElsewhere() bool {
	if m.now == nil {
		return false
	}
	for i := range m.now.Policies {
		if p := &m.now.Policies[i]; p.Name == m.keysOf() {
			return operator.Kept(p) != "local"
		}
	}
	return false
}

// text is the page that is read.
func (m *model) text() []string {
	all := m.page.wrapped(m.width)
	m.page.top = max(0, min(m.page.top, len(all)-m.visible())) // it may be shorter since the screen is wider
	return slices.Concat([]string{m.paint.strong(cut(m.page.title, m.width))},
		all[m.page.top:min(len(all), m.page.top+m.visible())])
}

// changing is the form that is written, with the cursor in its field.
func (m *model) changing() ([]string, *tea.Cursor) {
	lines := []string{m.paint.strong(cut(m.form.title, m.width)), ""}
	widest := 0
	for i := range m.form.fields {
		widest = max(widest, runewidth.StringWidth(m.form.fields[i].label))
	}
	var cursor *tea.Cursor
	for i := range m.form.fields {
		f := &m.form.fields[i]
		label := "  " + pad(f.label, widest) + "  "
		f.input.SetWidth(max(1, m.width-runewidth.StringWidth(label)-1))
		if i == m.form.at && m.mode == formMode {
			label = "> " + label[2:]
			if cursor = f.input.Cursor(); cursor != nil {
				cursor.X += runewidth.StringWidth(label)
				cursor.Y = linesAbove - 1 + len(lines)
			}
		}
		lines = append(lines, cut(label, m.width)+f.input.View())
	}
	if m.mode == formMode {
		field := m.form.fields[m.form.at]
		return append(lines, "", m.paint.faint(cut("  "+field.label+": "+field.hint, m.width))), cursor
	}
	lines = append(lines, "")
	lines = append(lines, wrap("  "+terminal.Printable(m.form.asked), m.width, "  ")...)
	return append(lines, m.paint.strong("  Do it? y or n")), nil
}

// filterLine is the filter that is written.
func (m *model) filterLine() (string, *tea.Cursor) {
	m.filter.SetWidth(max(1, m.width-10))
	cursor := m.filter.Cursor()
	if cursor != nil {
		cursor.X += len("filter: ")
		cursor.Y = m.height - 1
	}
	return "filter: " + m.filter.View(), cursor
}

// hint is the last line.
func (m *model) hint() string {
	switch m.mode {
	case textMode:
		if m.page.about != nil && m.page.about.known {
			return "Esc back  ↑ ↓ more  u unlock  o override  r restore"
		}
		return "Esc back  ↑ ↓ more"
	case formMode:
		return "Enter next  Tab Shift-Tab other field  Esc change nothing"
	case confirmMode:
		return "y do it  n change nothing"
	case listMode, filterMode:
	}
	return hints()
}

// paint shows text in other ways. All that matters is in the text as well: it is for people who see colours.
type paint struct {
	strong, faint, alarm, selected func(string) string
}

// inColour is for a terminal. What it cannot do, or what NO_COLOR forbids, is left out when it is written.
func inColour() paint {
	style := func(s lipgloss.Style) func(string) string { return func(text string) string { return s.Render(text) } }
	return paint{
		strong:   style(lipgloss.NewStyle().Bold(true)),
		faint:    style(lipgloss.NewStyle().Faint(true)),
		alarm:    style(lipgloss.NewStyle().Foreground(lipgloss.Red)),
		selected: style(lipgloss.NewStyle().Reverse(true)),
	}
}

// plain is for an output that is written once.
func plain(out terminal.Output) paint {
	same := func(text string) string { return text }
	return paint{strong: out.Bold, faint: out.Dim, alarm: out.Red, selected: same}
}

// pad is text with spaces behind it, so that it is as wide as that.
func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-runewidth.StringWidth(text)))
}

// wrap breaks text into lines of at most so many columns, between words where it can; all but the first begin with indent.
func wrap(text string, width int, indent string) []string {
	var lines []string
	for rest := text; ; {
		if runewidth.StringWidth(rest) <= width {
			return append(lines, rest)
		}
		line := runewidth.Truncate(rest, width, "")
		from := len(rest) - len(strings.TrimLeft(rest, " ")) // its indent is not a place to break
		if at := strings.LastIndexByte(rest[:min(len(line)+1, len(rest))], ' '); at > from {
			line = rest[:at]
		}
		if line == "" || width <= runewidth.StringWidth(indent) {
			return append(lines, cut(rest, width)) // there is no room for a word
		}
		lines = append(lines, line)
		rest = indent + strings.TrimLeft(rest[len(line):], " ")
	}
}

// below are the lines of what is told below the rows: as many as it needs, but not so many that nothing else is seen.
func (m *model) below() []string {
	most := max(1, m.height/4)
	lines := wrap(m.notice, m.width, "  ")
	if len(lines) > most {
		lines = append(lines[:most-1], cut(strings.Join(lines[most-1:], " "), m.width))
	}
	if m.failed {
		for i := range lines {
			lines[i] = m.paint.alarm(lines[i])
		}
	}
	return lines
}

// wrapped are the lines of the page, as wide as the screen is.
func (p *page) wrapped(width int) []string {
	all := make([]string, 0, len(p.lines))
	for _, line := range p.lines {
		line = "  " + line
		indent := len(line) - len(strings.TrimLeft(line, " "))
		all = append(all, wrap(line, width, strings.Repeat(" ", indent+2))...)
	}
	return all
}
