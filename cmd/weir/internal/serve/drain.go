package serve

import (
	"net/http"
	"sync"
	"sync/atomic"
)

// drain counts the requests in flight, to know when those that were there before the shutdown are answered.
type drain struct {
	handler http.Handler
	// state is the number of requests in flight, plus begun.
	state atomic.Int64
	idle  chan struct{}
	once  sync.Once
}

// begun in the state says that the shutdown has begun.
const begun = 1 << 62

func newDrain(h http.Handler) *drain { return &drain{handler: h, idle: make(chan struct{})} }

// ServeHTTP serves r, and counts it if the shutdown has not begun.
func (d *drain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	late := d.state.Add(1)&begun != 0
	if late {
		d.leave()
	} else {
		defer d.leave()
	}
	d.handler.ServeHTTP(w, r)
}

func (d *drain) leave() {
	if d.state.Add(-1) == begun {
		d.once.Do(func() { close(d.idle) })
	}
}

// begin begins the shutdown. It returns how many requests are in flight, and a channel that is closed when they are
// answered.
func (d *drain) begin() (inFlight int64, idle <-chan struct{}) {
	inFlight = d.state.Or(begun) &^ begun
	if inFlight == 0 {
		d.once.Do(func() { close(d.idle) })
	}
	return inFlight, d.idle
}
