package top

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// once prints one frame: with rates, for which it waits until the server has said something twice.
func once(ctx context.Context, m *model, w io.Writer) error {
	out := terminal.Of(w)
	m.paint = plain(out)
	var wrong error
	err := m.client.Events(ctx, func(e operator.Event) bool {
		if e.Name != overviewEvent {
			return true
		}
		o := new(operator.Overview)
		if wrong = json.Unmarshal(e.Data, o); wrong != nil {
			return false
		}
		m.take(o)
		return m.rates == nil
	})
	if err != nil {
		return err
	}
	if wrong != nil {
		return fmt.Errorf("weir: %s does not answer as weir serve does: %w", m.client.Server(), wrong)
	}
	if m.pane != policiesPane {
		if m.loaded, err = panes[m.pane].fetch(ctx, m.client, m.policyOf()); err != nil {
			return err
		}
		m.of = m.pane
	}
	m.hear()
	m.arrange()
	_, err = io.WriteString(w, m.frame(out))
	if err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	return nil
}

// frame is all there is to see, as text. In a terminal lines end where it ends.
func (m *model) frame(out terminal.Output) string {
	width := end
	if out.Interactive {
		width = out.Width
	}
	l, p := &m.lists[m.pane], &panes[m.pane]
	g := newGrid(p.columns, m.rows)
	lines := []string{m.totals(), "", m.paint.strong(cut(g.head(l.sort, l.reverse), width))}
	if wrong := m.wrong(width); wrong != "" {
		lines[1] = wrong
	}
	if len(m.rows) == 0 {
		lines = append(lines, m.none())
	}
	for i := range m.rows {
		lines = append(lines, cut(strings.TrimRight(g.row(&m.rows[i]), " "), width))
	}
	return strings.Join(lines, "\n") + "\n"
}
