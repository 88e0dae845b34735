package live

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// Parsed is what a configuration says.
type Parsed struct {
	Set *policy.Set
	// Warnings are what is likely not meant, a line each.
	Warnings []string
	// Secrets are the values that came from the environment, by name. They are never told.
	Secrets map[string]string
	// Extra is what else was made of the files, for [Limits.Extra]. It becomes that of the Set.
	Extra any
}

// whole is the set with what else was made of the files.
func (p *Parsed) whole() *policy.Set {
	set := *p.Set
	set.Extra = p.Extra
	return &set
}

// Options configure [Limits].
type Options struct {
	// Path is the configuration file, and More another file, or a directory of files, that is read with it. One of them is
	// required.
	Path, More string
	// IgnoreDotFiles leaves out files and directories below More whose names begin with a dot. Default: they are read.
	IgnoreDotFiles bool
	// Parse makes a set of them. Its error should be a [*yamlread.Errors]. Required.
	Parse func(f Files) (Parsed, error)
	// Engine are the options of the engine. Its OnExplain gets explanations without what came from the environment.
	Engine policy.EngineOptions
	// Store returns the store of shared policies, nil for none. It is asked once, when the file was read for the first time. It
	// belongs to the caller. Default: nil, none.
	Store func() (store.Home, error)
	// Durable returns what keeps the limits of durable policies, nil for nothing. It is asked once, after Store, and belongs to
	// the caller. Default: nil, nothing.
	Durable func() (store.Home, error)
	// Reloaded gets the result of each reload, one after the other. Default: nil.
	Reloaded func(r *Reload)
	// Logger logs at level Info what has changed, at level Error what is wrong. Required.
	Logger *slog.Logger
}

// Limits are those of a configuration file. All methods are safe for concurrent use.
type Limits struct {
	o      Options
	engine *policy.Engine
	log    *slog.Logger

	loading sync.Mutex // one load at a time; guards digest
	digest  [sha256.Size]byte

	names   atomic.Pointer[named]
	secrets atomic.Pointer[redactor]

	text atomic.Pointer[string] // of the files in force

	loaded time.Time // for the first time

	mu               sync.Mutex // guards the rest
	reloads, refused uint64
	history          []Reload // the last one last
}

// ErrUnchanged says that a file has the same content as when it was read last.
var ErrUnchanged = errors.New("weir: the configuration is as it was")

// Load reads the configuration for the first time. The error says all that is wrong with it.
func Load(o Options) (*Limits, error) {
	l := &Limits{o: o, log: o.Logger}
	l.secrets.Store(&redactor{})
	files, err := l.read()
	if err != nil {
		return nil, err
	}
	parsed, err := o.Parse(files)
	if err != nil {
		return nil, err
	}
	options := o.Engine
	if explain := options.OnExplain; explain != nil {
		options.OnExplain = func(e policy.Explanation) { explain(l.clean(e)) }
	}
	l.secrets.Store(newRedactor(parsed.Secrets, nil))
	if o.Store != nil {
		if options.Store, err = o.Store(); err != nil {
			return nil, err
		}
	}
	if o.Durable != nil {
		if options.Durable, err = o.Durable(); err != nil {
			return nil, err
		}
	}
	l.engine, err = policy.NewEngine(parsed.whole(), options)
	if err != nil {
		return nil, fmt.Errorf("weir: %s cannot be used: %w", l.name(), err)
	}
	l.digest = files.digest()
	l.keep(&files)
	l.loaded = time.Now()
	l.warn(parsed.Warnings)
	return l, nil
}

// Reload reads the configuration again and puts it in force, or says all that is wrong with it and leaves everything as it
// is. cause is why, for the log: "SIGHUP", for instance. It returns how many changes there are.
func (l *Limits) Reload(cause string) (changes int, err error) {
	return l.reload(cause, false)
}

// reloadIfChanged is Reload, unless the file has the content that was read last, or cannot be read for the same reason: then the
// error is [ErrUnchanged] as well.
func (l *Limits) reloadIfChanged() error {
	_, err := l.reload("file", true)
	return err
}

func (l *Limits) reload(cause string, onlyIfChanged bool) (int, error) {
	l.loading.Lock()
	defer l.loading.Unlock()
	if l.fixed() {
		return 0, ErrFixed
	}
	files, err := l.read()
	digest := files.digest()
	if err != nil {
		digest = sha256.Sum256([]byte(err.Error())) // a file that is gone is told of once
	}
	if onlyIfChanged && digest == l.digest {
		return 0, errors.Join(ErrUnchanged, err)
	}
	l.digest = digest
	if err != nil {
		return 0, l.refuse(cause, err)
	}
	parsed, err := l.o.Parse(files)
	if err != nil {
		return 0, l.refuse(cause, err)
	}
	// What is told of a change is old and new, and so is why it was refused.
	l.secrets.Store(newRedactor(parsed.Secrets, l.secrets.Load()))
	changes, err := l.engine.Load(parsed.whole())
	if err != nil {
		return 0, l.refuse(cause, err)
	}
	l.keep(&files)
	version := l.engine.Report().Version
	l.note(&Reload{Time: time.Now().UTC(), Cause: cause, Version: version, Changes: l.changed(changes), Count: len(changes)})
	l.tell(cause, version, changes)
	l.warn(parsed.Warnings)
	return len(changes), nil
}

// name is where the limits stand.
func (l *Limits) name() string {
	if l.o.Path == "" {
		return l.o.More
	}
	return l.o.Path
}

// mostTold is how many changes or mistakes are logged each by itself.
const mostTold = 200

// tell logs what has changed.
func (l *Limits) tell(cause string, version uint64, changes []policy.Change) {
	secrets := l.secrets.Load()
	l.log.Info("configuration loaded", "file", l.name(), "cause", cause, "version", version,
		"changes", len(changes))
	for i, c := range changes {
		if i == mostTold {
			l.log.Info("more has changed", "changes", len(changes)-i)
			break
		}
		attributes := []any{
			"path", secrets.clean(c.Path), "old", secrets.clean(c.Old), "new", secrets.clean(c.New),
		}
		if c.State != "" {
			attributes = append(attributes, "state", c.State)
		}
		l.log.Info("changed", attributes...)
	}
}

func (l *Limits) warn(warnings []string) {
	for _, w := range warnings[:min(len(warnings), mostTold)] {
		l.log.Warn("configuration", "warning", w)
	}
}

// refuse notes that a configuration cannot be used, and returns err.
func (l *Limits) refuse(cause string, err error) error {
	lines := Lines(err)
	for i := range lines {
		lines[i] = l.secrets.Load().clean(lines[i])
	}
	l.note(&Reload{
		Time: time.Now().UTC(), Cause: cause, Version: l.engine.Report().Version, Mistakes: lines[:min(len(lines), mostTold)],
	})
	l.log.Error("configuration refused, the one before stays in force", "file", l.name(), "cause", cause,
		"mistakes", len(lines))
	for _, line := range lines[:min(len(lines), mostTold)] {
		l.log.Error("mistake", "text", line)
	}
	return err
}

// Lines are what is wrong, a line each.
func Lines(err error) []string {
	if list, ok := errors.AsType[*yamlread.Errors](err); ok {
		return list.Lines()
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var lines []string
		for _, e := range joined.Unwrap() {
			lines = append(lines, e.Error())
		}
		return lines
	}
	return []string{err.Error()}
}

// ReloadOn reloads each time when a value comes, until ctx ends or the channel is closed. Without a file it logs that there is
// nothing to read again.
func (l *Limits) ReloadOn(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case s, ok := <-signals:
			if !ok {
				return
			}
			// Any other error is logged and kept for the status.
			_, err := l.Reload(signalName(s)) //nolint:contextcheck // overrides that end ask their store
			if errors.Is(err, ErrFixed) {
				l.log.Info("a signal to reload is ignored: the limits are those of the command line", "signal", signalName(s))
			}
		case <-ctx.Done():
			return
		}
	}
}

func signalName(s os.Signal) string {
	if s.String() == "hangup" {
		return "SIGHUP"
	}
	return s.String()
}

// Engine decides on requests.
func (l *Limits) Engine() *policy.Engine { return l.engine }

// Extra is what else was made of the files whose set is in force: see [Parsed].
func (l *Limits) Extra() any { return l.engine.Set().Extra }

// named are the policies of a set by their names, and whether they have a key.
type named struct {
	set  *policy.Set
	keys map[string]bool
}

// inForce are the policies of the set that decides at this moment.
func (l *Limits) inForce() map[string]bool {
	set := l.engine.Set()
	if n := l.names.Load(); n != nil && n.set == set {
		return n.keys
	}
	n := &named{set, make(map[string]bool, len(set.Policies))}
	for i := range set.Policies {
		n.keys[set.Policies[i].Name] = set.Policies[i].Key != nil
	}
	l.names.Store(n)
	return n.keys
}

// Has reports whether there is a policy with this name at this moment. It may be removed before the next one: see
// [policy.Verdict.Unknown].
func (l *Limits) Has(name string) bool {
	_, ok := l.inForce()[name]
	return ok
}

// MayLackKey reports whether there is no policy with this name that has a key: requests of one without share a state, whose key
// is "".
func (l *Limits) MayLackKey(name string) bool { return !l.inForce()[name] }

// Policy is the policy with this name, nil if there is none.
func (l *Limits) Policy(name string) *policy.Policy {
	set := l.engine.Set()
	for i := range set.Policies {
		if set.Policies[i].Name == name {
			return &set.Policies[i]
		}
	}
	return nil
}

// PolicyNames are those of all policies.
func (l *Limits) PolicyNames() []string {
	set := l.engine.Set()
	names := make([]string, len(set.Policies))
	for i := range set.Policies {
		names[i] = set.Policies[i].Name
	}
	return names
}

// Explain tells how a request would be answered now, without what came from the environment.
func (l *Limits) Explain(r *policy.Request) policy.Explanation { return l.clean(l.engine.Explain(r)) }

// Status is the state of [Limits].
type Status struct {
	// Report is that of the engine. Its LastError and LastAttempt are those of the last attempt, which the
	// engine does not see if the file could not be read.
	policy.Report

	// File is the configuration file, "" if there is none.
	File string `json:"file"`
	// Reloads counts the configurations that were put in force after the first one, Refused those that could not be.
	Reloads uint64 `json:"reloads"`
	Refused uint64 `json:"reloads_refused"`
	// LastCause is why the last attempt was made, "" if there was none.
	LastCause string `json:"last_cause,omitempty"`
	// Mistakes are why the last attempt was refused, none if it was not.
	Mistakes []string `json:"mistakes,omitempty"`
}

// Status returns the state.
func (l *Limits) Status() Status {
	s := Status{File: l.name(), Report: l.engine.Report()}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Reloads, s.Refused, s.LastAttempt, s.LastError = l.reloads, l.refused, l.loaded, ""
	if len(l.history) > 0 {
		last := &l.history[len(l.history)-1]
		s.LastAttempt, s.LastCause, s.Mistakes = last.Time, last.Cause, last.Mistakes
	}
	if len(s.Mistakes) > 0 {
		s.LastError = s.Mistakes[0]
	}
	return s
}
