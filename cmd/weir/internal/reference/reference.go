// Package reference writes the pages of docs/reference: every command of the program, with its flags, as it explains itself.
package reference

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Index is the name of the page that lists all others.
const Index = "README.md"

// header begins each page.
const header = "<!-- Written by go generate in cmd/weir from what the program says itself. Changes belong there. -->\n\n"

// Pages returns the text of each page by the name of its file: one for each command below root with all that is below it, and
// [Index]. The same commands give the same pages, wherever and whenever that is.
func Pages(root *cobra.Command) map[string]string {
	pages := make(map[string]string)
	var commands []*cobra.Command
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() {
			commands = append(commands, cmd)
			pages[file(cmd)] = page(cmd)
		}
	}
	pages[Index] = index(root, commands)
	return pages
}

// file is the name of the page of a command.
func file(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".md" }

func index(root *cobra.Command, commands []*cobra.Command) string {
	var b strings.Builder
	b.WriteString(header + "# Every command and option\n\n")
	b.WriteString(prose(root.Long))
	b.WriteString("\n| command | |\n|---|---|\n")
	for _, cmd := range commands {
		fmt.Fprintf(&b, "| [`%s`](%s) | %s |\n", cmd.CommandPath(), file(cmd), cell(cmd.Short))
		for _, sub := range below(cmd) {
			fmt.Fprintf(&b, "| [`%s`](%s#%s) | %s |\n", sub.CommandPath(), file(cmd), anchor(sub), cell(sub.Short))
		}
	}
	b.WriteString("\n`weir COMMAND --help` says the same in a terminal. The file that `--config` names has [a page of its own]" +
		"(../configuration.md).\n\n## What a command ends with\n\n" +
		"| exit status | |\n|---|---|\n" +
		"| 0 | it did what it was asked for |\n" +
		"| 1 | it could not, or a check or a test that it ran has failed |\n" +
		"| 2 | it was asked for something that is not there, or is out of its range: the message says what is accepted |\n" +
		"| 130 | it was interrupted before it was done |\n\n" +
		"A command whose status means something else as well says so on its page. Messages go to standard error, results to " +
		"standard output.\n")
	examples(&b, "## Examples", root.Example)
	return b.String()
}

// below are the commands below cmd at any depth that can be run, in the order of the help.
func below(cmd *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, sub := range cmd.Commands() {
		switch {
		case !sub.IsAvailableCommand():
		case sub.HasAvailableSubCommands():
			all = append(all, below(sub)...)
		default:
			all = append(all, sub)
		}
	}
	return all
}

// anchor is the fragment of the heading of a command.
func anchor(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

func page(cmd *cobra.Command) string {
	var b strings.Builder
	b.WriteString(header + "# " + cmd.CommandPath() + "\n\n")
	subs := below(cmd)
	if len(subs) == 0 {
		describe(&b, cmd, "##", flags(cmd))
		return b.String()
	}
	b.WriteString(cell(cmd.Short) + ".\n\n")
	if cmd.Use != cmd.Name() { // it does something itself
		b.WriteString("```text\n" + cmd.UseLine() + "\n```\n\n")
	}
	b.WriteString(prose(cmd.Long))
	b.WriteString("\n| command | |\n|---|---|\n")
	for _, sub := range subs {
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", sub.CommandPath(), anchor(sub), cell(sub.Short))
	}
	examples(&b, "## Examples", cmd.Example)
	if own := flags(cmd); len(own) > 0 {
		b.WriteString("\n## Flags\n\n" + table(own))
	}
	shared := common(subs)
	if len(shared) > 0 {
		b.WriteString("\n## Flags of all of these\n\n" + table(shared))
	}
	for _, sub := range subs {
		fmt.Fprintf(&b, "\n## %s\n\n", sub.CommandPath())
		describe(&b, sub, "###", slices.DeleteFunc(flags(sub), func(f flag) bool { return slices.Contains(shared, f) }))
	}
	return b.String()
}

// describe writes what a command without others below it does. Headings begin with level.
func describe(b *strings.Builder, cmd *cobra.Command, level string, own []flag) {
	b.WriteString(cell(cmd.Short) + ".\n\n```text\n" + cmd.UseLine() + "\n```\n\n" + prose(cmd.Long))
	examples(b, level+" Examples"+suffix(cmd, level), cmd.Example)
	if len(own) > 0 {
		b.WriteString("\n" + level + " Flags" + suffix(cmd, level) + "\n\n" + table(own))
	}
}

// suffix tells headings of the third level of one page apart.
func suffix(cmd *cobra.Command, level string) string {
	if level == "##" {
		return ""
	}
	return " of " + cmd.CommandPath()
}

func examples(b *strings.Builder, heading, text string) {
	if text == "" {
		return
	}
	b.WriteString("\n" + heading + "\n\n```sh\n")
	for line := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		b.WriteString(strings.TrimPrefix(line, "  "))
	}
	b.WriteString("```\n")
}

// flag is what a page says of a flag.
type flag struct{ name, fallback, usage string }

var defaultAtEnd = regexp.MustCompile(`^(.*\S)\s*\(default:? (.*)\)$`)

// flags are those of a command, as its help lists them, without --help.
func flags(cmd *cobra.Command) []flag {
	var all []flag
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		said := flag{name: "--" + f.Name, usage: strings.Join(strings.Fields(f.Usage), " ")}
		if f.Shorthand != "" {
			said.name = "-" + f.Shorthand + ", " + said.name
		}
		if kind := f.Value.Type(); kind != "bool" {
			said.name += " " + kind
		}
		if f.DefValue != "" && f.DefValue != "false" {
			said.fallback = f.DefValue
			if !strings.ContainsAny(said.fallback, " `") {
				said.fallback = "`" + said.fallback + "`"
			}
		} else if parts := defaultAtEnd.FindStringSubmatch(said.usage); parts != nil {
			said.usage, said.fallback = parts[1], parts[2]
		} else if f.Value.Type() == "bool" {
			said.fallback = "off"
		}
		all = append(all, said)
	})
	return all
}

// common are the flags that all of several commands have alike, in the order of the first one; none if there are fewer than
// three.
func common(commands []*cobra.Command) []flag {
	const several = 3
	if len(commands) < several {
		return nil
	}
	return slices.DeleteFunc(flags(commands[0]), func(f flag) bool {
		return slices.ContainsFunc(commands, func(cmd *cobra.Command) bool { return !slices.Contains(flags(cmd), f) })
	})
}

func table(all []flag) string {
	var b strings.Builder
	b.WriteString("| flag | default | |\n|---|---|---|\n")
	for _, f := range all {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", strings.ReplaceAll(f.name, "|", `\|`), cell(f.fallback), cell(f.usage))
	}
	return b.String()
}
