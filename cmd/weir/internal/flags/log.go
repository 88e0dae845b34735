package flags

import (
	"io"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// LogLevel is the flag that says from which level on is logged.
const LogLevel = "log-level"

// Log is how a command logs.
type Log struct {
	// Level is the least level that is written: debug, info, warn or error. Default: info.
	Level string
	// Format is text (key=value) or json (one object a line). Default: text.
	Format string
}

// Register sets l to the defaults and adds the flags to fs, which write to l.
func (l *Log) Register(fs *pflag.FlagSet) {
	*l = Log{Level: "info", Format: "text"}
	fs.Var(OneOf(&l.Level, "debug", "info", "warn", "error"), LogLevel,
		"least level of what is logged to standard error")
	fs.Var(OneOf(&l.Format, "text", "json"), "log-format", "form of the log: key=value, or a JSON object a line")
}

// New returns a logger that writes to w. What does not print is escaped in both forms.
func (l *Log) New(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: l.level()}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(printable{w}, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// printable escapes what does not print in the lines of JSON that are written to it, such as marks that turn the direction of the
// text: a key that a client has chosen must not make a line look like another one.
type printable struct{ to io.Writer }

// Write implements [io.Writer].
func (p printable) Write(line []byte) (int, error) {
	if _, err := p.to.Write(terminal.PrintableJSON(line)); err != nil {
		return 0, err //nolint:wrapcheck // as if it were not there
	}
	return len(line), nil
}

func (l *Log) level() slog.Level {
	switch l.Level {
	case "debug":
		return slog.LevelDebug
	case "warn":
		return slog.LevelWarn
	case "error":
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}
