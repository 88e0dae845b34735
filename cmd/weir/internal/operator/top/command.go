// Package top is the command that shows a running server live in a terminal.
package top

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// options are the flags of the command.
type options struct {
	server operator.Server
	pane   string
	policy string
	filter string
	sort   string
	once   bool
}

// Command returns the command "top".
func Command() *cobra.Command {
	o := options{pane: panes[policiesPane].name}
	cmd := &cobra.Command{
		Use:   "top [flags]",
		Short: "Show a running server live, and let keys through",
		Long: `top shows what a running weir serve does, every second: how many requests each
policy allows and refuses, how many wait, the keys under the most pressure,
those that are locked out, those with another limit for a while, and the last
refusals with all their numbers. It sorts and filters, ends lockouts, and gives
a key another limit; a change asks for a reason, and once more.

The key ? lists all keys. If the server goes away top says so, and goes on when
it is back.

--once prints one frame as text, for scripts and pipes: every row, with the
rates of one second.` + operator.ExitStatus,
		Example: `  weir top
  weir top --pane keys --policy per-client
  weir top --once --sort refused/s | head -n 20
  weir top --server https://weir.example.com --token-file token`,
		Args: flags.NoArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.Var(flags.OneOf(&o.pane, paneNames()...), "pane", "what to show first")
	fs.Var(flags.UTF8(&o.policy, 1, operator.MostKey), "policy",
		"the policy whose keys are shown (default: the first one in the list)")
	fs.Var(flags.Text(&o.filter, 1, 1024), "filter", "show only the rows that have this text somewhere (default: all)")
	fs.Var(flags.Text(&o.sort, 1, 64), "sort",
		"the column to sort by, as its head says, with a minus before it the other way round (default: that of the pane)")
	fs.BoolVar(&o.once, "once", false, "print one frame as text, and end")
	o.server.Register(fs)
	o.server.CompletePolicies(cmd)
	return cmd
}

func (o *options) run(cmd *cobra.Command) error {
	client, err := o.server.Client()
	if err != nil {
		return err
	}
	defer client.Close()
	m := newModel(client)
	if err := m.begin(o); err != nil {
		return err
	}
	stdin, stdout := cmd.InOrStdin(), cmd.OutOrStdout()
	if o.once {
		return operator.WrongQuestion(once(cmd.Context(), m, stdout))
	}
	in, ok := stdin.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) || !terminal.Of(stdout).Interactive || os.Getenv("TERM") == "dumb" {
		return flags.Errorf("top needs a terminal for its input and output: give --once to print one frame as text")
	}
	return operator.WrongQuestion(live(cmd.Context(), m, in, stdout))
}

// live shows m until the operator ends it, or ctx ends.
func live(ctx context.Context, m *model, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// What cannot be reached at all is said in a line, and not in a screen that is gone at once.
	var first operator.Overview
	if err := m.client.Get(ctx, operator.OverviewPath, nil, &first); err != nil {
		return err
	}
	m.ctx = ctx
	m.take(&first)
	m.hear()
	program := tea.NewProgram(m, tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		follow(ctx, m.client, program.Send)
	}()
	stop := context.AfterFunc(ctx, program.Quit)
	_, err := program.Run()
	stop()
	interrupted := ctx.Err()
	cancel()
	<-ended
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("weir: %w", err)
	}
	return interrupted
}

// once prints one frame: with rates, for which it waits until the server has said something twice.
func once(ctx context.Context, m *model, w io.Writer) error {
	out := terminal.Of(w)
	m.paint = plain(out)
	var wrong error
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	silent := fmt.Errorf("weir: %s does not answer as weir serve does: it sends no figures", m.client.Server())
	patience := m.client.Timeout()
	late := time.AfterFunc(patience, func() { giveUp(silent) }) // other events may come for ever
	defer late.Stop()
	err := m.client.Events(ctx, func(e operator.Event) bool {
		if e.Name != overviewEvent {
			return true
		}
		o := new(operator.Overview)
		if wrong = json.Unmarshal(e.Data, o); wrong != nil {
			return false
		}
		m.take(o)
		late.Reset(patience)
		return m.rates == nil
	})
	late.Stop()
	switch {
	case err != nil && errors.Is(context.Cause(ctx), silent):
		return silent
	case err != nil:
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
	g := newGrid(p.columns, m.rows, width)
	lines := []string{m.totals(), "", m.paint.strong(cut(g.head(l.sort, l.reverse), width))}
	lines[1] = cmp.Or(m.wrong(width), cut(g.leftOut(l.sort, l.reverse), width))
	if len(m.rows) == 0 {
		lines = append(lines, m.none())
	}
	for i := range m.rows {
		lines = append(lines, cut(strings.TrimRight(g.row(&m.rows[i]), " "), width))
	}
	return strings.Join(lines, "\n") + "\n"
}
