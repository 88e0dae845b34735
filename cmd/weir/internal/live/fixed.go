package live

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/weirhq/weir/policy"
)

// ErrFixed says that limits cannot be reloaded, as they are not those of a file.
var ErrFixed = errors.New("weir: the limits are those of the command line: there is no file to read")

// Fixed answers limits that are never reloaded.
func Fixed(set *policy.Set, o policy.EngineOptions, log *slog.Logger) (*Limits, error) {
	l := &Limits{log: log}
	l.secrets.Store(&redactor{})
	var err error
	if l.engine, err = policy.NewEngine(withChecks(set), o); err != nil {
		return nil, fmt.Errorf("weir: the limits cannot be used: %w", err)
	}
	l.accept(Parsed{Set: set})
	return l, nil
}

// KeyOfCheck is the key of policies of which checks name it, as there are no rules that could tell it.
func KeyOfCheck() policy.Text { return checkKey{} } //nolint:ireturn // nothing else is known of it

// fixed tells whether the limits are those of [Fixed].
func (l *Limits) fixed() bool { return l.o.Path == "" && l.o.More == "" }
