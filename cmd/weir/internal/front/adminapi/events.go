package adminapi

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
)

const (
	mostStreams = 32
	// tick is how often it is looked for what has happened, and overviewTicks every how many times there is an overview.
	tick          = 250 * time.Millisecond
	overviewTicks = 4
	// mostRefusals is how many refusals are sent at a time.
	mostRefusals = 20
	// buffered is how many events wait for a slow reader. Those after them are lost to it.
	buffered = 64
	// largeOverview is how many bytes of overviews are sent in a second, about: larger ones come less often.
	largeOverview = 1 << 20
	heartbeat     = 15 * time.Second
	// patience is how long a reader may take to take something.
	patience = 10 * time.Second
)

// hub has the streams of events. Something is made for them only while there are any, and once for all.
type hub struct {
	h    *Handler
	done chan struct{} // closed when all streams shall end

	mu      sync.Mutex
	all     map[*stream]struct{}
	number  uint64 // of the last one
	running bool   // a goroutine sends them
	ended   bool
}

// stream is a reader.
type stream struct {
	events chan []byte
	of     adminguard.Caller
	number uint64
	gone   chan struct{} // closed when it has to make room for another one
}

func (b *hub) init(h *Handler) {
	b.h, b.done, b.all = h, make(chan struct{}), make(map[*stream]struct{})
}

func (b *hub) open() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.all)
}

// end ends all streams.
func (b *hub) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.ended = true
		close(b.done)
	}
}

// join adds a stream of a caller, nil if there are too many or there shall be none any more.
func (b *hub) join(of adminguard.Caller) *stream {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return nil
	}
	if len(b.all) >= mostStreams {
		leaving := b.unfair(of)
		if leaving == nil {
			return nil
		}
		delete(b.all, leaving)
		close(leaving.gone)
	}
	b.number++
	s := &stream{make(chan []byte, buffered), of, b.number, make(chan struct{})}
	b.all[s] = struct{}{}
	if !b.running {
		b.running = true
		// Told is what happens from now on, not from when that goroutine begins.
		_, refused := b.h.o.Refusals.Since(0, 0)
		_, audited := b.h.o.Audit.Since(^uint64(0))
		go b.run(refused, audited)
	}
	return s
}

func (b *hub) leave(s *stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.all, s)
}

// run tells all streams what happens after those numbers of refusals and changes, until there are no streams.
func (b *hub) run(refused, audited uint64) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	wait := overviewTicks
	for {
		select {
		case <-b.done:
			return
		case <-ticker.C:
		}
		var events [][]byte
		last, number := b.h.o.Refusals.Since(refused, mostRefusals)
		refused = number
		for i := range last {
			b.h.cleanRefusal(&last[i])
			events = append(events, event("refusal", &last[i]))
		}
		entries, entry := b.h.o.Audit.Since(audited)
		audited = entry
		for i := range entries {
			events = append(events, event("audit", &entries[i]))
		}
		if wait--; wait <= 0 {
			overview := event("overview", b.h.state())
			events = append(events, overview)
			wait = overviewTicks * (1 + len(overview)/largeOverview)
		}
		if !b.send(events) {
			return
		}
	}
}

// send gives events to all streams that have room for them. It reports whether there are any.
func (b *hub) send(events [][]byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.all {
		for _, e := range events {
			select {
			case s.events <- e:
			default:
			}
		}
	}
	b.running = len(b.all) > 0
	return b.running
}

// event is an event as it is sent.
func event(name string, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil { // all of it can always be encoded
		return []byte(": " + name + " cannot be told\n\n")
	}
	return append(append([]byte("event: "+name+"\ndata: "), text...), "\n\n"...)
}

// events serves GET admin.EventsPath.
func (h *Handler) events(q *call) (any, *answer.Problem) {
	if q.r.Method == http.MethodHead {
		sayEvents(q.w.Header())
		return nil, nil
	}
	s := h.hub.join(adminguard.CallerOf(q.r))
	if s == nil {
		q.w.Header().Set("Retry-After", "5")
		return nil, answer.PlainProblem(http.StatusServiceUnavailable,
			"there are %d streams of events, which is all there may be, and no other client has more of them than you; "+
				"or the server shuts down", mostStreams)
	}
	defer h.hub.leave(s)
	sayEvents(q.w.Header())
	h.hub.tell(q.w, q.r, s)
	return nil, nil
}

// sayEvents says in the header of an answer that it is a stream.
func sayEvents(header http.Header) {
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Accel-Buffering", "no") // of nginx in between
}

// tell writes the events of a stream until it is ended.
func (b *hub) tell(w http.ResponseWriter, r *http.Request, s *stream) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // nothing more is read: the error is that there is none
	write := func(text []byte) bool {
		if !b.h.o.Guard.Knows(r) { // any more
			return false
		}
		_ = control.SetWriteDeadline(time.Now().Add(patience)) // as long as the server has it otherwise
		_, err := w.Write(text)
		return err == nil && control.Flush() == nil
	}
	if !write([]byte("retry: 2000\n\n")) || !write(event("overview", b.h.state())) {
		return
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case e := <-s.events:
			if !write(e) {
				return
			}
		case <-beat.C:
			if !write([]byte(": still here\n\n")) {
				return
			}
		case <-s.gone:
			_ = write([]byte(": this stream makes room for that of a client with fewer\n\n")) // it ends anyway
			return
		case <-r.Context().Done():
			return
		case <-b.done:
			_ = write([]byte("event: end\ndata: {}\n\n")) // it ends anyway
			return
		}
	}
}
