package proxy

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/httplimit"
)

const grpcType = "application/grpc"

// isCall reports whether r has the form of a call of gRPC.
func isCall(r *http.Request) bool {
	rest, ok := strings.CutPrefix(r.Header.Get("Content-Type"), grpcType)
	return ok && r.Method == http.MethodPost && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// forCaller makes a refusal one of gRPC if r is a call: a status in a header alone. Clients take 429 for Unavailable, and call
// again without a wait.
func forCaller(r *http.Request, f *httplimit.Refusal) {
	if r.ProtoMajor != 2 || !isCall(r) || f.Decision.Reason == weir.ReasonInvalid {
		return
	}
	h := f.Header
	h.Set("Content-Type", grpcType)
	h.Set("Grpc-Status", strconv.Itoa(int(codeOf(f.Decision.Reason))))
	h.Set("Grpc-Message", front.GRPCMessage(f.Problem.Detail))
	switch wait := f.Decision.RetryAfter; {
	case wait == weir.Never:
		h.Set("Grpc-Retry-Pushback-Ms", "-1") // clients do not call again by themselves
	case wait > 0:
		ms := min(int64((wait-1)/time.Millisecond)+1, math.MaxInt32)
		h.Set("Grpc-Retry-Pushback-Ms", strconv.FormatInt(ms, 10))
	}
	f.Status, f.Body = http.StatusOK, []byte{}
}

// codeOf is the code of a refusal, as that of package grpclimit.
func codeOf(r weir.Reason) codes.Code {
	switch r {
	case weir.ReasonOverloaded, weir.ReasonTableFull, weir.ReasonTrackingCap, weir.ReasonClosed, weir.ReasonUnavailable:
		return codes.Unavailable
	case weir.ReasonDenied:
		return codes.PermissionDenied
	default:
		return codes.ResourceExhausted
	}
}
