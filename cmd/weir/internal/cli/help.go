package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

const helpTemplate = `{{.CommandPath}}: {{.Short}}

{{with .Long}}{{. | trimTrailingWhitespaces}}

{{end}}{{.UsageString}}`

const usageTemplate = `{{heading "Usage"}}
{{- if or (not .HasAvailableSubCommands) (ne .Use .Name)}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND{{end}}
{{if .HasExample}}
{{heading "Examples"}}
{{.Example}}
{{end}}{{if .HasAvailableSubCommands}}
{{heading "Commands"}}{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{end}}{{if .HasAvailableLocalFlags}}
{{flags .LocalFlags}}
{{end}}{{if .HasAvailableSubCommands}}
"{{.CommandPath}} COMMAND --help" explains a command.
{{end}}`

// styleHelp sets the form of all help: what the command does, then how it is called, examples, and flags.
func styleHelp(root *cobra.Command) {
	out := terminal.Of(root.OutOrStdout())
	cobra.AddTemplateFunc("heading", func(s string) string { return out.Bold(s + ":") })
	cobra.AddTemplateFunc("flags", func(fs *pflag.FlagSet) string { return flagHelp(fs, out) })
	root.SetHelpTemplate(helpTemplate)
	root.SetUsageTemplate(usageTemplate)
}

// usageOfCobra replaces what cobra says about the flags that it adds itself.
var usageOfCobra = map[string]string{"help": "explain the command", "version": "print the version"}

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
