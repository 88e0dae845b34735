package httplimit

import (
	"log/slog"
	"net/http"

	"github.com/weirhq/weir"
)

// Refusal is the answer to a refused request before it is written. A hook may change what it likes.
type Refusal struct {
	// Decision is what the limiter answered, and Cost what it was asked for.
	Decision weir.Decision
	Cost     int64
	// Key is the key of the request, "" where the limiter has none.
	Key string
	// Header is the header of the response, in which the RateLimit fields and Retry-After are already set.
	Header http.Header
	// Status is the status code: from 200 to 599.
	Status int
	// Problem is what the body says, in JSON or in one line of text, whichever the client prefers. Its Status is set
	// to that of the refusal.
	Problem Problem
	// Body replaces the body, unless it is nil; an empty one leaves the response without a body. Default: nil.
	Body []byte
	// ContentType is the type of Body. Default: "text/plain; charset=utf-8".
	ContentType string
}

const (
	problemType = "application/problem+json"
	textType    = "text/plain; charset=utf-8"
)

// write sends the refusal.
func (f *Refusal) write(w http.ResponseWriter, r *http.Request, logger *slog.Logger) {
	if f.Status < http.StatusOK || f.Status > 599 {
		logger.ErrorContext(r.Context(), "httplimit: the hook set a status that is not from 200 to 599", "status", f.Status)
		f.Status = usualStatus(f.Problem.Type)
	}
	f.Problem.Status = f.Status
	body, contentType := f.Body, f.ContentType
	switch {
	case body != nil && contentType == "":
		contentType = textType
	case body != nil:
	case prefersText(r.Header["Accept"]):
		body, contentType = f.Problem.text(), textType
	default:
		body, contentType = f.Problem.json(), problemType
	}
	header := w.Header()
	for _, name := range [...]string{
		"Content-Length", "Content-Encoding", "Etag", "Last-Modified", "Cache-Control", "Expires",
	} {
		delete(header, name) // of the answer that is not given
	}
	hasBody := len(body) > 0 && f.Status != http.StatusNoContent && f.Status != http.StatusNotModified
	if hasBody {
		header.Set("Content-Type", contentType)
		header.Set("X-Content-Type-Options", "nosniff")
	}
	w.WriteHeader(f.Status)
	if hasBody && r.Method != http.MethodHead {
		_, _ = w.Write(body) // if the client is gone, nobody is there to be told
	}
}
