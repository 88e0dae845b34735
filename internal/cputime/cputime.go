// Package cputime tells how much time of processors this process has used.
package cputime

import (
	"errors"
	"time"
)

// ErrUnknown says that the system does not tell.
var ErrUnknown = errors.New("weir: how much time of processors was used is not known on this system")

// Used returns the time of processors that this process has used. The error is [ErrUnknown] on neither a Unix nor Windows.
func Used() (time.Duration, error) { return used() }
