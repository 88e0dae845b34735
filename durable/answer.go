package durable

import (
	"fmt"

	"github.com/weirhq/weir"
)

// Outcome is how a request for permits has ended.
type Outcome uint8

const (
	// Granted says that the permits are the caller's, and that this will survive a crash.
	Granted Outcome = 1 + iota
	// Refused says that the permits are not there, to a caller that would not wait.
	Refused
	// Never says that the request asks for more than there can ever be.
	Never
	// QueueFull says that too many permits are waited for already.
	QueueFull
	// Expired says that the deadline of the request has passed. Nothing was taken.
	Expired
	// Canceled says that the caller went away. Nothing was taken.
	Canceled
	// Stopping says that the owner ends its term. Nothing was taken; the next owner can be asked at once.
	Stopping
	// Unavailable says that there is no owner, or that it could not write. It is not known to have taken anything, and never
	// takes more than it was asked for. It can be tried again.
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

// Answer is how a request for permits has ended. The permits are the caller's if and only if Outcome is Granted. It is no pair
// of a value and an error: Err is nil where the limiter has refused. [Store].Acquire returns an error in every case but Granted.
type Answer struct {
	// Outcome says how. The zero Answer is no grant.
	Outcome Outcome
	// Decision says it in the words of package weir, with what is left and when to come back.
	Decision weir.Decision
	// Reservation is what was reserved, if that was asked for; otherwise the zero Reservation.
	Reservation Reservation
	// Err is why it was Unavailable. It is nil with all other outcomes, those that refuse included.
	Err error
}

// Reservation is permits whose cost is settled later.
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
