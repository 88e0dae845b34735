package top

import (
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/mattn/go-runewidth"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// paint shows text in other ways. All that matters is in the text as well: it is for those who see colours.
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
