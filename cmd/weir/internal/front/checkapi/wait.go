package checkapi

import (
	"context"
	"net/http"
	"time"

	"github.com/weirhq/weir"
)

// answerTime is how long the answer to a client that has waited may take.
const answerTime = 30 * time.Second

// wait decides on the request of x for a client that is ready to wait. It tells whether the client has gone: then its place in
// the queue is somebody else's.
func (h *Handler) wait(w http.ResponseWriter, r *http.Request, x *exchange, most time.Duration) (gone bool) {
	if h.configured.waiting.Err() != nil {
		h.configured.limits.Engine().Take(&x.request, &x.verdict)
		return false
	}
	// The server bounds how long a request takes that does not wait. If the connection cannot have deadlines, it has none.
	at, control := time.Now().Add(most+answerTime), http.NewResponseController(w)
	_ = control.SetReadDeadline(at)
	_ = control.SetWriteDeadline(at)

	ctx, cancel := context.WithTimeout(r.Context(), most)
	defer cancel()
	stop := context.AfterFunc(h.configured.waiting, cancel) //nolint:contextcheck // it is that of the server
	defer stop()
	x.request.Context = ctx //nolint:fatcontext // each request has its own
	if err := h.configured.limits.Engine().Wait(ctx, &x.request, &x.verdict); err == nil {
		return false
	}
	if r.Context().Err() != nil {
		return true
	}
	x.close()
	return false
}

// close makes the verdict that of a server which ends: another one can be asked at once.
func (x *exchange) close() {
	v := &x.verdict
	v.Allowed = false
	if v.Binding >= 0 && v.Binding < len(v.Parts) {
		d := &v.Parts[v.Binding].Decision
		d.Allowed, d.Reason, d.RetryAfter = false, weir.ReasonClosed, 0
	}
}

// EndWaiting answers those who wait for permits that the server ends. From now on nobody waits.
func (h *Handler) EndWaiting() {
	if h.configured != nil {
		h.configured.endWaiting()
	}
}
