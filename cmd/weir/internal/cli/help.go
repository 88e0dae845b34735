package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// styleHelp sets the form of all help: what the command does, then how it is called, examples, and flags. It is written by
// functions: a template calls methods by names, for which the linker would keep every method of the program.
// failed is called with why the help could not be written: what cobra calls returns no error.
func styleHelp(root *cobra.Command, failed func(error)) {
	out := terminal.Of(root.OutOrStdout())
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		if err := printText(cmd, helpOf(cmd, out)); err != nil {
			failed(err)
		}
	})
}

func helpOf(cmd *cobra.Command, out terminal.Output) string {
	own := cmd.LocalFlags() // which is when cobra adds those of the commands above
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n\n", cmd.CommandPath(), cmd.Short)
	if cmd.Long != "" {
		b.WriteString(strings.TrimSpace(cmd.Long) + "\n\n")
	}
	b.WriteString(out.Bold("Usage:"))
	commands := slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool { return !c.IsAvailableCommand() })
	if len(commands) == 0 || cmd.Use != cmd.Name() {
		b.WriteString("\n  " + cmd.UseLine())
	}
	if len(commands) > 0 {
		b.WriteString("\n  " + cmd.CommandPath() + " COMMAND")
	}
	b.WriteString("\n")
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\n%s\n%s\n", out.Bold("Examples:"), cmd.Example)
	}
	if len(commands) > 0 {
		b.WriteString("\n" + out.Bold("Commands:"))
		for _, c := range commands {
			fmt.Fprintf(&b, "\n  %-*s %s", c.NamePadding(), c.Name(), c.Short)
		}
		b.WriteString("\n")
	}
	if own.HasAvailableFlags() {
		b.WriteString("\n" + flagHelp(own, out) + "\n")
	}
	if len(commands) > 0 {
		fmt.Fprintf(&b, "\n\"%s COMMAND --help\" explains a command.\n", cmd.CommandPath())
	}
	return b.String()
}

// usageOfCobra replaces what cobra says about the flags that it adds itself.
var usageOfCobra = map[string]string{"help": "explain the command"}

const (
	flagIndent = 6
	widestHelp = 100
)

// flagHelp lists each flag with its value on a line, and below it what it does and its default.
func flagHelp(fs *pflag.FlagSet, out terminal.Output) string {
	width := min(out.Width, widestHelp)
	var headings []string
	texts := make(map[string]*strings.Builder)
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		heading := flags.GroupOf(f)
		b := texts[heading]
		if b == nil {
			b = new(strings.Builder)
			texts[heading] = b
			headings = append(headings, heading)
		}
		writeFlag(b, f, width)
	})
	// Those without a group come first.
	slices.SortStableFunc(headings, func(a, b string) int { return min(len(a), 1) - min(len(b), 1) })
	var all strings.Builder
	for _, heading := range headings {
		name := "Flags"
		if heading != "" {
			name += " for " + heading
		}
		all.WriteString(out.Bold(name+":") + "\n" + texts[heading].String() + "\n")
	}
	return strings.TrimRight(all.String(), "\n")
}

// writeFlag writes the help of a flag.
func writeFlag(b *strings.Builder, f *pflag.Flag, width int) {
	b.WriteString("  ")
	if f.Shorthand != "" {
		b.WriteString("-" + f.Shorthand + ", ")
	}
	b.WriteString("--" + f.Name)
	if kind := f.Value.Type(); kind != "bool" {
		b.WriteString(" " + kind)
	}
	usage := strings.Join(strings.Fields(f.Usage), " ")
	if text, ok := usageOfCobra[f.Name]; ok && strings.HasPrefix(usage, f.Name+" for ") {
		usage = text
	}
	if f.DefValue != "" && f.DefValue != "false" {
		usage += " (default " + f.DefValue + ")"
	}
	b.WriteString("\n" + terminal.Wrap(usage, flagIndent, width) + "\n")
}
