package checkapi

import (
	"context"
	"net/http"
	"time"

	"github.com/weirhq/weir/policy"
)

// answerTime is how long the answer to a client that has waited may take.
const answerTime = 30 * time.Second

// wait decides on q for a client that is ready to wait. It reports whether the client has gone.
func (h *Handler) wait(
	ctx context.Context, w http.ResponseWriter, q *policy.Request, v *policy.Verdict, how way,
) (gone bool) {
	// The server bounds how long a request takes that does not wait. If the connection cannot have deadlines, it has none.
	at, control := time.Now().Add(how.wait+answerTime), http.NewResponseController(w)
	_ = control.SetReadDeadline(at)
	_ = control.SetWriteDeadline(at)
	decide := h.limits.Engine().Wait
	if how.reserve {
		decide = h.limits.Engine().WaitReserve
	}
	return !h.waiting.For(ctx, how.wait, q, v, decide)
}

// EndWaiting answers those who wait for permits that the server ends. From now on nobody waits.
func (h *Handler) EndWaiting() { h.waiting.End() }
