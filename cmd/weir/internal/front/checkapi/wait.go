package checkapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/policy"
)

// answerTime is how long the answer to a client that has waited may take.
const answerTime = 30 * time.Second

// wait decides on q for a client that is ready to wait. It reports whether the client has gone: then its place in the queue is
// somebody else's.
func (h *Handler) wait(w http.ResponseWriter, r *http.Request, q *policy.Request, v *policy.Verdict, how way) (gone bool) {
	engine := h.limits.Engine()
	if h.waiting.Err() != nil {
		how.wait = 0
		return h.decideOn(w, r, q, v, how)
	}
	// The server bounds how long a request takes that does not wait. If the connection cannot have deadlines, it has none.
	at, control := time.Now().Add(how.wait+answerTime), http.NewResponseController(w)
	_ = control.SetReadDeadline(at)
	_ = control.SetWriteDeadline(at)

	ctx, cancel := context.WithTimeout(r.Context(), how.wait)
	defer cancel()
	stop := context.AfterFunc(h.waiting, cancel) //nolint:contextcheck // it is that of the server
	defer stop()
	q.Context = r.Context() // a store may take longer to answer than the client waits for permits
	decide := engine.Wait
	if how.reserve {
		decide = engine.WaitReserve
	}
	if err := decide(ctx, q, v); err == nil || errors.Is(err, weir.ErrRefused) {
		return false // the verdict says so
	}
	if r.Context().Err() != nil {
		return true
	}
	answer.Close(v)
	return false
}

// EndWaiting answers those who wait for permits that the server ends. From now on nobody waits.
func (h *Handler) EndWaiting() { h.endWaiting() }
