package flags

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirhq/weir/config"
)

// Error is one line that says what was given and what is accepted. The program adds how to get help.
type Error struct{ text string }

// Error is the line, without a prefix.
func (e *Error) Error() string { return e.text }

// Errorf returns an [Error] with a text that is formatted as by [fmt.Sprintf]. Arguments that come from the user must
// be formatted with %q.
func Errorf(format string, args ...any) *Error { return &Error{fmt.Sprintf(format, args...)} }

// BadValue returns an [Error] about the value of a flag. The name comes without dashes; accepted reads as what follows
// "must be" does, and says so itself: "must be from 1 to 10".
func BadValue(name, value, accepted string) *Error {
	return Errorf("--%s %s: %s", name, Quote(value), accepted)
}

// maxQuoted is how much of a wrong value is repeated.
const maxQuoted = 60

// Quote is value in quotes, without the password of a URL, with what does not print escaped, and cut when it is long.
func Quote(value string) string {
	if strings.Contains(value, "://") {
		value = config.Redacted(value)
	}
	if len(value) > maxQuoted {
		value = value[:maxQuoted] + "..."
	}
	return fmt.Sprintf("%q", value)
}

// Nearest returns which of the words was probably meant by the mistyped one: the one with the fewest edits, at most two
// and at most half of its letters. It is not ok if none is that near. Case does not matter, and a word that begins
// with the mistyped one (of two letters at least) counts as one edit away.
func Nearest(mistyped string, words []string) (nearest string, ok bool) {
	const most = 2
	if len(mistyped) > maxQuoted {
		return "", false
	}
	typed := strings.ToLower(mistyped)
	least := most + 1
	for _, word := range words {
		lower := strings.ToLower(word)
		distance := levenshtein.ComputeDistance(typed, lower)
		if distance > 1 && len(typed) > 1 && strings.HasPrefix(lower, typed) {
			distance = 1
		}
		if distance < least && 2*distance <= len(word) {
			nearest, least = word, distance
		}
	}
	return nearest, least <= most
}

// NoArguments is a cobra.PositionalArgs for commands that take flags alone.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if extension := filepath.Ext(args[0]); (extension == ".yaml" || extension == ".yml") && cmd.Flags().Lookup("config") != nil {
		hint = "; did you mean " + Quote("--config "+args[0]) + "?"
	}
	return Errorf("unexpected argument %s%s", Quote(args[0]), hint)
}

// InputError is an error about what was given as input, such as a configuration with mistakes. The program exits with 2 for
// it as well, and adds nothing: help would not help.
type InputError struct{ text string }

// Error is the text.
func (e *InputError) Error() string { return e.text }

// Inputf returns an [InputError] with a text that is formatted as by [fmt.Sprintf].
func Inputf(format string, args ...any) *InputError { return &InputError{fmt.Sprintf(format, args...)} }

// OnlySubcommands is the RunE of commands that do nothing but have subcommands: it shows their help, or returns that there is no
// such subcommand.
func OnlySubcommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return NoSubcommand(cmd, args[0])
}

// NoSubcommand returns that cmd has no subcommand of this name, and which was probably meant.
func NoSubcommand(cmd *cobra.Command, name string) error {
	names := make([]string, 0, len(cmd.Commands()))
	for _, sub := range cmd.Commands() {
		names = append(names, sub.Name())
	}
	hint := ""
	if nearest, ok := Nearest(name, names); ok {
		hint = "; did you mean " + Quote(nearest) + "?"
	}
	return Errorf("%s has no command %s%s", cmd.Name(), Quote(name), hint)
}

// Alone refuses the first of the flags that was given, and says why it cannot stand as it does, such as "needs --config".
func Alone(fs *pflag.FlagSet, why string, names ...string) error {
	for _, name := range names {
		if fs.Changed(name) {
			return Errorf("--%s %s", name, why)
		}
	}
	return nil
}
