package flags

import (
	"io"
	"log/slog"

	"github.com/spf13/pflag"
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

// New returns a logger that writes to w.
func (l *Log) New(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: l.level()}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
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
