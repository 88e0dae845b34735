package durable

import "time"

// SetClock sets the clock of an owner ahead.
func SetClock(o *Owner, ahead time.Duration) { o.wall += int64(ahead) }
