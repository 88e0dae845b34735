package load

import "net"

// outcome is what a reply says of its request.
type outcome uint8

const (
	answered outcome = iota // without an error, and it is not known whether the request was allowed
	allowed
	refused
	failed // with an error
	outcomes
)

// reply is one that a codec has read.
type reply struct {
	slot    uint32 // that of the request
	outcome outcome
	fault   *fault // of a request that has failed
}

// fault is why a request has failed.
type fault struct {
	kind string // such as "NOAUTH" or "status 404"
	text string // all that the server says of it
}

// codec is what one connection speaks. Its methods, other than open, are called one at a time.
type codec interface {
	// open greets the server on a new connection, which has a deadline, and forgets what was said on an older one. It returns
	// what the server has said beyond that.
	open(nc net.Conn) (rest []byte, err error)
	// room is how many requests can be sent now as far as the protocol is concerned.
	room() int
	// request appends a request to b. Its reply has the same slot.
	request(b, key []byte, slot uint32) []byte
	// replies reads what is complete of b, and appends it. It returns how many bytes it has read.
	replies(b []byte, to []reply) (n int, all []reply, err error)
	// control returns what must be sent besides requests, and nil mostly.
	control() []byte
}

// protocolError is about a server that does not speak the protocol.
type protocolError struct{ text string }

func (e *protocolError) Error() string { return e.text }

// unlimited is the room of a protocol without a limit.
const unlimited = 1 << 30

// order are the slots of requests that are answered one after the other.
type order struct {
	slots []uint32 // a ring, as many as a power of two
	first uint64
	next  uint64
}

func (o *order) reset() { o.first, o.next = 0, 0 }

func (o *order) empty() bool { return o.first == o.next }

func (o *order) push(slot uint32) {
	if n := uint64(len(o.slots)); o.next-o.first == n {
		grown := make([]uint32, max(2*n, 16))
		for i := o.first; i < o.next; i++ {
			grown[i%uint64(len(grown))] = o.slots[i%n]
		}
		o.slots = grown
	}
	o.slots[o.next&uint64(len(o.slots)-1)] = slot
	o.next++
}

// pop returns the oldest. There must be one.
func (o *order) pop() uint32 {
	slot := o.slots[o.first&uint64(len(o.slots)-1)]
	o.first++
	return slot
}
