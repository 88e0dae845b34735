package load

import "time"

// waiter waits until a time of a schedule.
type waiter interface {
	wait(d time.Duration)
	close()
}

// rest waits as the runtime of Go does.
func rest(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
}

// sleeper is the waiter of virtual time.
type sleeper struct{}

func (sleeper) wait(d time.Duration) { rest(d) }
func (sleeper) close()               {}
