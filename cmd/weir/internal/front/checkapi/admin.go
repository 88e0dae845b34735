package checkapi

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/explained"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/policy"
)

// Admin says who may look at the state of the server, and reload its configuration.
type Admin struct {
	// Token is what they show, as "Authorization: Bearer TOKEN". If there is one, everybody needs it.
	Token []byte
	// Local says that the server listens on a loopback address only. Then everybody who reaches it may, if there is no Token,
	// but no page that a browser has loaded from elsewhere.
	Local bool
}

// The length of a token.
const (
	shortestToken = 16
	longestToken  = 4096
)

// ReadToken reads the token in a file, without the space around it.
func ReadToken(path string) ([]byte, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the file is the choice of the operator
	if err != nil {
		return nil, fmt.Errorf("weir: token: %w", err)
	}
	token := bytes.TrimSpace(text)
	if len(token) < shortestToken || len(token) > longestToken {
		return nil, fmt.Errorf("weir: token: %s has %d bytes: must have from %d to %d",
			path, len(token), shortestToken, longestToken)
	}
	for _, c := range token {
		if c <= ' ' || c > '~' {
			return nil, fmt.Errorf("weir: token: %s has the byte %#x: must be printable ASCII without spaces", path, c)
		}
	}
	return token, nil
}

// forbidden is why a request may not be answered, nil if it may.
func (a Admin) forbidden(w http.ResponseWriter, r *http.Request) *problem {
	switch {
	case len(a.Token) > 0:
		shown, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		// Sums have the same length, so that not even that of the token can be measured.
		want, got := sha256.Sum256(a.Token), sha256.Sum256([]byte(shown))
		if subtle.ConstantTimeCompare(want[:], got[:]) == 1 && ok {
			return nil
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
		return &problem{
			Status: http.StatusUnauthorized,
			Detail: r.URL.Path + " needs the token of --admin-token-file: Authorization: Bearer TOKEN",
		}
	case !a.Local:
		return &problem{
			Status: http.StatusForbidden,
			Detail: r.URL.Path + " is answered only if weir listens on a loopback address, or with --admin-token-file",
		}
	case !isLocalHost(r.Host):
		// A page whose name leads to this machine is of the same origin to its browser.
		return newProblem(http.StatusForbidden, "Host", excerpt([]byte(r.Host)), "must be an address or localhost")
	}
	if err := sameOrigin.Check(r); err != nil {
		return newProblem(http.StatusForbidden, "Origin", excerpt([]byte(r.Header.Get("Origin"))), "must be that of the server")
	}
	return nil
}

// isLocalHost tells whether a host is an address or localhost, with or without port.
func isLocalHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost")
}

// explain answers POST /v1/explain.
func (h *Handler) explain(w http.ResponseWriter, r *http.Request) *problem {
	var described policy.Request
	if _, p := readDescribed(r, make([]byte, 0, 512), &described); p != nil { // nothing is taken anyway
		return p
	}
	e := h.limits.Explain(&described)
	return writeJSON(w, explained.Of(&e))
}

// status answers GET /v1/status.
func (h *Handler) status(w http.ResponseWriter, _ *http.Request) *problem {
	text, err := json.Marshal(h.limits.Status())
	if err != nil {
		return &problem{Status: http.StatusInternalServerError, Detail: err.Error()}
	}
	all := map[string]any{"rejected": h.Rejected(), "reservations": h.holds.Len()}
	if h.extra != nil {
		maps.Copy(all, h.extra())
	}
	more, err := json.Marshal(all)
	if err != nil {
		return &problem{Status: http.StatusInternalServerError, Detail: err.Error()}
	}
	text = append(append(text[:len(text)-1], ','), more[1:]...)
	return writeJSON(w, json.RawMessage(text))
}

// reload answers POST /v1/reload.
func (h *Handler) reload(w http.ResponseWriter, _ *http.Request) *problem {
	changes, err := h.limits.Reload("API")
	switch {
	case errors.Is(err, live.ErrFixed):
		return &problem{Status: http.StatusConflict, Detail: strings.TrimPrefix(err.Error(), "weir: ")}
	case err != nil:
		p := &problem{
			Status:   http.StatusUnprocessableEntity,
			Detail:   "the configuration cannot be used, the one before stays in force",
			Mistakes: h.limits.Status().Mistakes,
		}
		if _, ok := errors.AsType[live.Mistakes](err); !ok {
			p.Detail += ": " + strings.TrimPrefix(p.Mistakes[0], "weir: ")
		}
		return p
	}
	return writeJSON(w, struct {
		Version uint64 `json:"version"`
		Changes int    `json:"changes"`
	}{h.limits.Engine().Report().Version, changes})
}

// writeJSON answers with v.
func writeJSON(w http.ResponseWriter, v any) *problem {
	text, err := json.Marshal(v)
	if err != nil {
		return &problem{Status: http.StatusInternalServerError, Detail: err.Error()}
	}
	text = append(text, '\n')
	header := w.Header()
	header["Content-Type"] = jsonType
	header["Cache-Control"] = []string{"no-store"}
	header["Content-Length"] = []string{strconv.Itoa(len(text))}
	_, _ = w.Write(text) // if the client is gone, nobody is there to be told
	return nil
}
