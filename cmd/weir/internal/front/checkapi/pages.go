package checkapi

import (
	_ "embed" // of the document
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/policy"
)

// health handles GET /healthz and GET /healthcheck.
func (h *Handler) health(w http.ResponseWriter, r *http.Request) *answer.Problem {
	w.Header().Set("Cache-Control", "no-store")
	if h.draining.Load() {
		return plain(w, r, http.StatusServiceUnavailable, "shutting down\n")
	}
	return plain(w, r, http.StatusOK, "ok\n")
}

// plain replies with a text.
func plain(w http.ResponseWriter, r *http.Request, code int, s string) *answer.Problem {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	length(w, r, []byte(s))
	w.WriteHeader(code)
	_, _ = io.WriteString(w, s)
	return nil
}

// ready handles GET /readyz. Why it is not ready is for operators: in the log and the status.
func (h *Handler) ready(w http.ResponseWriter, r *http.Request) *answer.Problem {
	if h.draining.Load() || h.isReady == nil || h.isReady() == nil {
		return h.health(w, r)
	}
	w.Header().Set("Cache-Control", "no-store")
	return plain(w, r, http.StatusServiceUnavailable, "durable limits cannot be decided\n")
}

// about serves GET /.
func (h *Handler) about(w http.ResponseWriter, r *http.Request) *answer.Problem {
	var b strings.Builder
	if h.traffic != "" {
		b.WriteString("No request is passed on here, but at " + h.traffic + ".\n\n")
	}
	b.WriteString("This is weir, a rate limiter. Ask it whether a request is within its limit:\n\n  ")
	b.WriteString(Example(r.Host, h.limits.Engine().Set()))
	b.WriteString("\n\nThe answer is 200 if it is, 429 if it is not. The policies are:\n\n")
	h.aboutPolicies(&b)
	b.WriteString("\nPOST " + checkPath + " asks one of them by name. GET " + openAPIPath +
		" describes all there is to ask, and\nGET " + healthPath + " shows whether the server is up.\n")
	return plain(w, r, http.StatusOK, b.String())
}

// aboutAdmin serves GET / where the admin pages are apart.
func aboutAdmin(w http.ResponseWriter, r *http.Request) *answer.Problem {
	return plain(w, r, http.StatusOK, "These are the admin pages of weir, a rate limiter. The dashboard is at "+operator.UIPath+
		", GET "+openAPIPath+"\ndescribes all there is to ask, and GET "+healthPath+" shows whether the server is up.\n")
}

// aboutPolicies lists the policies.
func (h *Handler) aboutPolicies(b *strings.Builder) {
	set := h.limits.Engine().Set()
	for i := range set.Policies {
		p := &set.Policies[i]
		fmt.Fprintf(b, "  %s:", p.Name)
		for j := range p.Limits {
			if j > 0 {
				b.WriteByte(',')
			}
			b.WriteString(" " + h.limits.Clean(p.Limits[j].String()))
		}
		if p.Mode != policy.ModeEnforce {
			fmt.Fprintf(b, " (%v)", p.Mode)
		}
		b.WriteByte('\n')
	}
}

// Example is a command for a shell that asks the server at address: to decide on a request if the limits have rules, or else to
// check a policy.
func Example(address string, set *policy.Set) string {
	body, path := `{"key":"alice"}`, checkPath
	switch {
	case len(set.Rules) > 0 || len(set.Policies) == 0:
		body, path = `{"method":"GET","path":"/","client":"192.0.2.1"}`, decidePath
	case !slices.ContainsFunc(set.Policies, func(p policy.Policy) bool { return p.Name == string(defaultPolicy) }):
		name := strconv.Quote(set.Policies[0].Name) // as in JSON, as it is printable ASCII
		body = `{"policy":` + strings.ReplaceAll(name, "'", `\u0027`) + `,"key":"alice"}`
	}
	return fmt.Sprintf("curl -i -d '%s' http://%s%s", body, address, path)
}

// openAPI describes the API to programs: OpenAPI 3.1.
//
//go:embed openapi.json
var openAPI []byte

// OpenAPI is the document about the pages of the handler.
func OpenAPI() []byte { return openAPI }

// openAPI serves GET /openapi.json.
func (h *Handler) openAPI(w http.ResponseWriter, _ *http.Request) *answer.Problem {
	text, err := h.document()
	if err != nil {
		return &answer.Problem{Status: http.StatusInternalServerError, Detail: err.Error()}
	}
	header := w.Header()
	header["Content-Type"] = jsonType
	header["Content-Length"] = []string{strconv.Itoa(len(text))}
	_, _ = w.Write(text) // a client that has gone is not told
	return nil
}
