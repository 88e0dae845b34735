package top

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// mode is what keys do.
type mode uint8

const (
	listMode    mode = 1 << iota // a pane is shown
	filterMode                   // the filter is written
	textMode                     // help, or what is known of a key or a refusal, is shown
	formMode                     // the fields of a change are written
	confirmMode                  // a change is to be confirmed
)

// model is what is shown.
type model struct {
	ctx    context.Context
	client *operator.Client
	paint  paint

	width, height int
	mode          mode
	pane          int
	lists         [numPanes]list
	policy        string // of the pane of keys, "" for the first one

	now    *operator.Overview
	base   *operator.Overview // that the rates are counted from
	rates  map[string]rates
	total  rates
	loaded []row // the rows that the server has sent
	asking bool  // for the rows of a pane
	of     int   // the pane that loaded is of
	paused bool
	gone   error // why the server is not there
	clock  func() time.Time
	heard  time.Time     // when the server was heard last
	apart  time.Duration // how far apart its last two words were

	rows   []row // of the pane, as they are shown
	filter textinput.Model
	page   page
	form   form
	notice string // of the last action
	failed bool   // it has
}

// rates are how many there are in a second.
type rates struct{ requests, allowed, refused float64 }

// list is how a pane is looked at.
type list struct {
	sort     int
	reverse  bool
	filter   string
	selected string // the id of a row
	cursor   int    // its place
	top      int    // the first row that is seen
}

// page is text that is longer than the screen.
type page struct {
	title string
	lines []string
	top   int
	about *row // whose details it is, nil if it is help
	pane  int  // of the row
}

func newModel(client *operator.Client) *model {
	m := &model{
		ctx: context.Background(), client: client, mode: listMode, width: 80, height: 24, paint: inColour(), of: -1,
		clock: time.Now,
	}
	m.heard = m.clock()
	for i := range panes {
		m.lists[i].sort = panes[i].sort
	}
	m.filter = newInput()
	return m
}

func newInput() textinput.Model {
	input := textinput.New()
	input.Prompt = ""
	input.CharLimit = 1024
	input.SetVirtualCursor(false)
	return input
}

// begin does what the flags say.
func (m *model) begin(o *options) error {
	m.pane = slices.Index(paneNames(), o.pane)
	m.policy = o.policy
	l := &m.lists[m.pane]
	l.filter = o.filter
	if o.sort == "" {
		return nil
	}
	by, reverse := strings.CutPrefix(o.sort, "-")
	heads := make([]string, len(panes[m.pane].columns))
	for i, c := range panes[m.pane].columns {
		heads[i] = c.head
	}
	l.sort, l.reverse = slices.Index(heads, by), reverse
	if l.sort < 0 {
		hint := ""
		if nearest, ok := flags.Nearest(by, heads); ok {
			hint = "; did you mean " + flags.Quote(nearest) + "?"
		}
		return flags.BadValue("sort", o.sort, "must be a column of "+o.pane+": "+strings.Join(heads, ", ")+hint)
	}
	return nil
}

// Init implements [tea.Model].
func (m *model) Init() tea.Cmd { return tea.Batch(m.refresh(), tick()) }

// Update implements [tea.Model].
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) { //nolint:ireturn // bubbletea wants the interface
	var cmd tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(msg.Width, 1), max(msg.Height, 1)
	case tea.KeyPressMsg:
		cmd = m.press(msg)
	case tea.PasteMsg:
		cmd = m.write(msg)
	case tickMsg:
		cmd = tick()
	case overviewMsg:
		m.gone = nil
		m.hear()
		if !m.paused {
			m.take(msg.overview)
			cmd = m.refresh()
		}
	case goneMsg:
		m.gone = msg.err
		m.base = nil // what was counted last is shown until it can be counted anew
	case rowsMsg:
		cmd = m.show(&msg)
	case detailMsg:
		m.known(&msg)
	case overrideMsg:
		cmd = m.overriding(&msg)
	case doneMsg:
		m.notice, m.failed = msg.text, msg.err != nil
		if msg.err != nil {
			m.notice = strings.TrimPrefix(msg.err.Error(), "weir: ")
		}
		cmd = m.refresh()
	}
	m.arrange()
	return m, cmd
}

// shortestInterval is what rates are counted over, at least: events that follow on each other would make wild ones.
const shortestInterval = 0.5

// mostSilent is how long the server may say nothing until what is shown is not taken for that of now. It says something each
// second, and less often if there is very much.
const mostSilent = 5 * time.Second

func (m *model) hear() {
	now := m.clock()
	m.apart, m.heard = now.Sub(m.heard), now
}

// silent is for how long the server has not been heard, 0 as long as what is shown is that of now.
func (m *model) silent() time.Duration {
	since := m.clock().Sub(m.heard)
	if m.gone == nil && since <= max(mostSilent, 3*min(m.apart, time.Minute)) {
		return 0
	}
	return max(since, 1)
}

// take takes over what the server says, and counts rates.
func (m *model) take(o *operator.Overview) {
	m.now = o
	if m.base == nil || !m.base.Started.Equal(o.Started) {
		m.base, m.rates = o, nil
		return
	}
	interval := o.Now.Sub(m.base.Now).Seconds()
	if interval < shortestInterval {
		return
	}
	// Counts of a policy begin anew when it goes and comes back.
	per := func(now, before uint64) float64 {
		if now < before {
			return 0
		}
		return float64(now-before) / interval
	}
	m.total = rates{
		requests: per(o.Requests, m.base.Requests), refused: per(o.Refused, m.base.Refused),
		allowed: per(o.Requests-o.Refused-o.Canceled, m.base.Requests-m.base.Refused-m.base.Canceled),
	}
	before := make(map[string]*operator.Policy, len(m.base.Policies))
	for i := range m.base.Policies {
		before[m.base.Policies[i].Name] = &m.base.Policies[i]
	}
	m.rates = make(map[string]rates, len(o.Policies))
	for i := range o.Policies {
		p := &o.Policies[i]
		if b := before[p.Name]; b != nil {
			m.rates[p.Name] = rates{allowed: per(p.Allowed, b.Allowed), refused: per(p.Refused, b.Refused)}
		}
	}
	m.base = o
}

// keysOf is the policy whose keys are shown: that which was chosen, or the first one.
func (m *model) keysOf() string {
	if m.policy != "" || m.now == nil || len(m.now.Policies) == 0 {
		return m.policy
	}
	return m.now.Policies[0].Name
}

// policyOf is the policy that the pane is about, "" for all.
func (m *model) policyOf() string {
	if m.pane == keysPane {
		return m.keysOf()
	}
	return ""
}

// show takes over the rows of a pane.
func (m *model) show(msg *rowsMsg) tea.Cmd {
	m.asking = false
	if msg.pane != m.pane || msg.policy != m.policyOf() {
		return m.refresh() // the operator has gone on meanwhile
	}
	if msg.err != nil {
		if m.gone == nil {
			m.notice, m.failed = strings.TrimPrefix(msg.err.Error(), "weir: "), true
		}
		return nil
	}
	if !m.paused || m.of != m.pane {
		m.loaded, m.of = msg.rows, msg.pane
	}
	return nil
}

// arrange makes the rows of the pane, and finds the one that is selected.
func (m *model) arrange() {
	l, p := &m.lists[m.pane], &panes[m.pane]
	switch m.rows = nil; m.pane {
	case policiesPane:
		m.rows = policyRows(m)
	case m.of:
		m.rows = slices.Clone(m.loaded)
	}
	m.rows = sorted(m.rows, p, l.sort, l.reverse, l.filter)
	at := slices.IndexFunc(m.rows, func(r row) bool { return r.id == l.selected })
	if at >= 0 {
		l.cursor = at
	}
	l.cursor = max(0, min(l.cursor, len(m.rows)-1))
	if len(m.rows) > 0 {
		l.selected = m.rows[l.cursor].id
	}
	seen := m.visible()
	l.top = max(0, min(l.top, len(m.rows)-seen))
	l.top = min(l.top, l.cursor)
	l.top = max(l.top, l.cursor-seen+1)
}

// selected is the row that is, nil if there is none.
func (m *model) selected() *row {
	l := &m.lists[m.pane]
	if l.cursor >= len(m.rows) {
		return nil
	}
	return &m.rows[l.cursor]
}

// move selects another row, or goes on in a page.
func (m *model) move(by int) tea.Cmd {
	if m.mode == textMode {
		m.page.top = max(0, min(m.page.top+by, len(m.page.wrapped(m.width))-m.visible()))
		return nil
	}
	l := &m.lists[m.pane]
	l.cursor = max(0, min(l.cursor+by, len(m.rows)-1))
	if len(m.rows) > 0 {
		l.selected = m.rows[l.cursor].id
	}
	return nil
}

// open shows another pane.
func (m *model) open(pane int) tea.Cmd {
	m.pane = pane
	m.notice = ""
	m.of = -1
	return m.refresh()
}

// say tells something below the rows.
func (m *model) say(failed bool, format string, args ...any) tea.Cmd {
	m.notice, m.failed = terminal.Printable(fmt.Sprintf(format, args...)), failed
	return nil
}
