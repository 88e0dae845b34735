package live

import "github.com/weirhq/weir/policy"

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
