package live

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/weirhq/weir/policy"
)

// ErrFixed says that limits cannot be reloaded, as they are not those of a file.
var ErrFixed = errors.New("weir: the limits are those of the command line: there is no file to read")

// Fixed returns limits that are never reloaded.
func Fixed(set *policy.Set, o policy.EngineOptions, log *slog.Logger) (*Limits, error) {
	l := &Limits{log: log}
	l.secrets.Store(&redactor{})
	var err error
	if l.engine, err = policy.NewEngine(set, o); err != nil {
		return nil, fmt.Errorf("weir: the limits cannot be used: %w", err)
	}
	return l, nil
}

// fixed reports whether the limits are those of [Fixed].
func (l *Limits) fixed() bool { return l.o.Path == "" && l.o.More == "" }
