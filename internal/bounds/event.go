// Package bounds checks, from what clients saw, whether a server kept a limit: it allowed no more than there was, and refused
// nothing while there was enough. Of each answer it knows only when the request was sent and when the answer arrived. It reports
// a fault only if there is one wherever in between the decision was made, so a slow network or a busy machine is never a fault.
package bounds

import "time"

// Event is something that happened to the permits of one key of a limit, at some time from Sent to Received: nanoseconds of one
// clock that never jumps.
type Event struct {
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
	N        int64 `json:"n"`
	Kind     Kind  `json:"kind"`
	// Since is when the permits that came back were taken, at the earliest, if they come back as if they had never been taken.
	// What came back meanwhile in their place, to a bucket that would have been full without them, is then not there. 0 if
	// they are given back whatever their origin.
	Since int64 `json:"since,omitempty"`
	// Epoch is the term of the owner that decided, 0 if it is not known, or there is none.
	Epoch int64 `json:"epoch,omitempty"`
}

// from is from when on permits that came back count as not taken.
func (e *Event) from() int64 {
	if e.Since != 0 {
		return e.Since
	}
	return e.Sent
}

// Kind is what an event is.
type Kind uint8

const (
	// Granted is N permits that a client was told it has.
	Granted Kind = iota
	// Refused is a request for N permits that a client was told are not there.
	Refused
	// Maybe is up to N permits that a request whose answer was lost may have taken.
	Maybe
	// Charged is N permits that were taken whether they were there or not.
	Charged
	// Returned is N permits that were given back, as far as there was room for them.
	Returned
	// MayReturn is up to N permits that may have been given back.
	MayReturn
	// Lapsed is N permits that a Maybe may have taken and has no longer, at the latest when it was Received.
	Lapsed
	// Unheard is MayReturn of which nothing is seen but that it is over: N permits that were Granted and are surely back when
	// it is Received.
	Unheard
)

var kindNames = [...]string{"granted", "refused", "maybe", "charged", "returned", "may-return", "lapsed", "unheard"}

// String is the name of the kind.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// MarshalText writes the name of the kind.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// taken reports whether the event may have taken permits.
func (k Kind) taken() bool { return k == Granted || k == Maybe || k == Charged }

// gives reports whether more may be granted because of the event.
func (k Kind) gives() bool { return k == Returned || k == MayReturn || k == Unheard }

// restores reports whether permits are surely there because of the event, once it was received.
func (k Kind) restores() bool { return k == Returned || k == Lapsed || k == Unheard }

// Breach is a bound that does not hold. The zero value is none.
type Breach struct {
	// Permits is how many were allowed too many, or refused although they were there.
	Permits float64 `json:"permits"`
	// From and To is the time in which that was so.
	From time.Duration `json:"from"`
	To   time.Duration `json:"to"`
	// Times is in how many answers it was seen.
	Times int `json:"times"`
}

// Broken reports whether there is a breach.
func (b Breach) Broken() bool { return b.Permits > 0 }

// Limit is what holds for the permits of one key.
type Limit interface {
	// Minted returns by how much more the events took than there was in some span of time, at most.
	Minted(events []Event) Breach
	// Lost returns which requests were refused although what they asked for was there.
	Lost(events []Event) Breach
	// Allowed is how much can be granted in a span of this length, at most.
	Allowed(span time.Duration) float64
}

// tolerance is a part of a permit that makes no breach: the sums are of floating point numbers.
const tolerance = 0.001
