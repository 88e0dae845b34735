package durable

import (
	"fmt"

	"github.com/weirhq/weir"
)

// Outcome is how a request for permits has ended.
type Outcome uint8

const (
	// Granted means: the permits are the caller's, and this will survive a crash.
	Granted Outcome = 1 + iota
	// Refused means: the permits are not there, and the caller would not wait.
	Refused
	// Never means: the request asks for more than there can ever be.
	Never
	// QueueFull means: too many permits are waited for already.
	QueueFull
	// Expired means: the deadline of the request has passed. Nothing was taken.
	Expired
	// Canceled means: the caller went away. Nothing was taken.
	Canceled
	// Stopping means: the owner ends its term. Nothing was taken; the next owner can be asked at once.
	Stopping
	// Unavailable means: there is no owner, or it could not write. It is not known whether permits were taken, and never more
	// than were asked for. The request can be tried again.
	Unavailable

	outcomes
)

var outcomeNames = [outcomes]string{
	"", "granted", "refused", "never", "queue-full", "expired", "canceled", "stopping", "unavailable",
}

// String is the name in lower case.
func (o Outcome) String() string {
	if o > 0 && o < outcomes {
		return outcomeNames[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Answer is how a request for permits has ended. The permits are the caller's if and only if Outcome is Granted. Check that, and
// not Err, which is nil where the limiter has refused. [Store].Acquire returns an error in every case but Granted.
type Answer struct {
	// Outcome is how it has ended. In the zero Answer it is not Granted.
	Outcome Outcome
	// Decision is the same as a decision of package weir, with what remains and when to come back.
	Decision weir.Decision
	// Reservation is what was reserved, if that was asked for; otherwise the zero Reservation.
	Reservation Reservation
	// Err is why it was Unavailable. It is nil with all other outcomes, those that refuse included.
	Err error
}

// Reservation is for permits whose cost is settled later.
type Reservation struct {
	ID      string
	Policy  string
	Key     string
	Permits int64
	// Expires is when it ends by itself, by the clock of the owner, in Unix nanoseconds.
	Expires int64
}

var reasons = [outcomes]weir.Reason{
	Refused: weir.ReasonLimited, Never: weir.ReasonNever, QueueFull: weir.ReasonQueueFull, Expired: weir.ReasonDeadline,
	Canceled: weir.ReasonCanceled, Stopping: weir.ReasonClosed, Unavailable: weir.ReasonUnavailable,
}
