package durable

import "time"

// SetClock sets the clock of an owner ahead.
func SetClock(o *Owner, ahead time.Duration) { o.time.unix += int64(ahead) }
