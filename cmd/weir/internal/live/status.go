package live

import (
	"time"

	"github.com/weirhq/weir/policy"
)

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

// attempts are what became of configurations after the first one.
type attempts struct {
	reloads, refused uint64
	lastAttempt      time.Time
	lastCause        string
	mistakes         []string
}

func (a *attempts) loaded(cause string) {
	a.reloads++
	a.lastAttempt, a.lastCause, a.mistakes = time.Now(), cause, nil
}

func (a *attempts) failed(cause string, mistakes []string) {
	a.refused++
	a.lastAttempt, a.lastCause, a.mistakes = time.Now(), cause, mistakes[:min(len(mistakes), mostTold)]
}

// Status returns the state.
func (l *Limits) Status() Status {
	s := Status{File: l.name(), Report: l.engine.Report()}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Reloads, s.Refused, s.LastCause = l.attempts.reloads, l.attempts.refused, l.attempts.lastCause
	s.Mistakes, s.LastAttempt, s.LastError = l.attempts.mistakes, l.attempts.lastAttempt, ""
	if len(s.Mistakes) > 0 {
		s.LastError = s.Mistakes[0]
	}
	return s
}
