package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// What the program ends with.
const (
	success     = 0
	failure     = 1
	misused     = 2
	interrupted = 130 // 128 + SIGINT, as shells have it
)

// report says in one line what went wrong, and returns the exit status.
func report(stderr io.Writer, cmd *cobra.Command, err error) int {
	if err == nil {
		return success
	}
	text, status := terminal.PrintableLines(err.Error()), failure // it may have texts of a server, or of a file
	var (
		wrong   *flags.Error
		invalid *flags.InputError
	)
	switch {
	case errors.As(err, &invalid):
		fmt.Fprintf(stderr, "%s %s\n", terminal.Of(stderr).Red("weir:"), strings.TrimPrefix(text, "weir: "))
		return misused
	case errors.As(err, &wrong):
		status = misused
	case strings.HasPrefix(text, "unknown command "): // of cobra, which has no type for it
		status = misused
		if word, unquoteErr := strconv.QuotedPrefix(strings.TrimPrefix(text, "unknown command ")); unquoteErr == nil {
			word, _ = strconv.Unquote(word)
			text = fmt.Sprintf("unknown command %s%s", flags.Quote(word), didYouMean(cmd, word))
		}
	case strings.HasPrefix(text, "required flag(s) "):
		status = misused
		names := strings.TrimSuffix(strings.TrimPrefix(text, "required flag(s) "), " not set")
		text = "needs " + required(cmd, strings.Split(strings.ReplaceAll(names, `"`, ""), ", "))
	case errors.Is(err, context.Canceled):
		status = interrupted
		text = "interrupted"
	}
	line := strings.TrimPrefix(text, "weir: ")
	if status == misused {
		line += fmt.Sprintf("; run \"%s --help\"", cmd.CommandPath())
	}
	fmt.Fprintf(stderr, "%s %s\n", terminal.Of(stderr).Red("weir:"), line)
	return status
}

// required lists flags, each with what it is for.
func required(cmd *cobra.Command, names []string) string {
	for i, name := range names {
		names[i] = "--" + name
		if f := cmd.Flags().Lookup(name); f != nil {
			usage, _, _ := strings.Cut(f.Usage, " (default")
			names[i] += " (" + usage + ")"
		}
	}
	return strings.Join(names, " and ")
}

// flagError turns what pflag says about the flags of cmd into misuse.
func flagError(cmd *cobra.Command, err error) error {
	var (
		unknown *pflag.NotExistError
		without *pflag.ValueRequiredError
		invalid *pflag.InvalidValueError
		syntax  *pflag.InvalidSyntaxError
	)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case errors.As(err, &invalid):
		return flags.BadValue(invalid.GetFlag().Name, invalid.GetValue(), invalidValue(invalid))
	case errors.As(err, &without):
		flag := without.GetFlag()
		return flags.Errorf("--%s needs a value: %s", flag.Name, flag.Value.Type())
	case errors.As(err, &unknown):
		if shorthands := unknown.GetSpecifiedShortnames(); shorthands != "" {
			known := "-h"
			cmd.Flags().VisitAll(func(f *pflag.Flag) {
				if f.Shorthand != "" && f.Shorthand != "h" {
					known += ", -" + f.Shorthand
				}
			})
			return flags.Errorf("unknown flag %s: flags of one letter are not known but %s%s",
				flags.Quote("-"+shorthands), known, nearestFlag(cmd, shorthands))
		}
		name := unknown.GetSpecifiedName()
		return flags.Errorf("unknown flag %s%s", flags.Quote("--"+name), nearestFlag(cmd, name))
	case errors.As(err, &syntax):
		return flags.Errorf("%s is not a flag", flags.Quote(syntax.GetSpecifiedFlag()))
	default:
		return flags.Errorf("%s", err)
	}
}

// invalidValue says what a flag accepts. Values of package flags say it themselves.
func invalidValue(err *pflag.InvalidValueError) string {
	switch err.GetFlag().Value.Type() {
	case "bool":
		return "must be true or false"
	case "int", "int64":
		return "must be a whole number"
	default:
		return err.Unwrap().Error()
	}
}

// usual has names that other programs, or other commands, have for flags of weir, of which some come with a value. Of several
// flags the first that a command has is meant.
var usual = []struct{ flag, names string }{
	{"listen", "addr address bind host p port"},
	{"http", "addr address bind host listen p port"},
	{"server", "addr address admin host http port u url"},
	{"config", "c conf f file"},
	{"limit", "qps rate rps"},
	{"limit '100/s, burst 200'", "burst"},
	{"upstream", "backend target"},
	{"log-level", "debug v verbose"},
}

func nearestFlag(cmd *cobra.Command, mistyped string) string {
	for _, u := range usual {
		flag, _, _ := strings.Cut(u.flag, " ")
		if slices.Contains(strings.Fields(u.names), mistyped) && cmd.Flags().Lookup(flag) != nil {
			return fmt.Sprintf("; did you mean %q?", "--"+u.flag)
		}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if nearest, ok := flags.Nearest(mistyped, names); ok {
		return fmt.Sprintf("; did you mean %q?", "--"+nearest)
	}
	return elsewhere(cmd, mistyped)
}

// elsewhere names a command below cmd that has a flag, or those beside it, or is "".
func elsewhere(cmd *cobra.Command, name string) string {
	has := func(other *cobra.Command) bool {
		f := other.Flags().Lookup(name)
		return f != nil && !f.Hidden && other.IsAvailableCommand()
	}
	if subs := cmd.Commands(); slices.ContainsFunc(subs, has) {
		return fmt.Sprintf("; write it after a command, such as %q", subs[slices.IndexFunc(subs, has)].CommandPath()+" --"+name)
	}
	var have []string
	if cmd.HasParent() {
		for _, other := range cmd.Parent().Commands() {
			if has(other) {
				have = append(have, strconv.Quote(other.CommandPath()))
			}
		}
	}
	switch last := len(have) - 1; {
	case last < 0:
		return ""
	case last == 0:
		return "; " + have[0] + " has it"
	default:
		return "; " + strings.Join(have[:last], ", ") + " and " + have[last] + " have it"
	}
}

// didYouMean suggests a command below cmd, or one below that, or nothing.
func didYouMean(cmd *cobra.Command, mistyped string) string {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
		for _, deeper := range sub.Commands() {
			if deeper.IsAvailableCommand() && deeper.Name() == mistyped {
				return fmt.Sprintf("; did you mean %q?", sub.Name()+" "+mistyped)
			}
		}
	}
	if nearest, ok := flags.Nearest(mistyped, names); ok {
		return fmt.Sprintf("; did you mean %q?", nearest)
	}
	return ""
}
