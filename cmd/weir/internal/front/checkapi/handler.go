package checkapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/policies"
	"github.com/weirhq/weir/httplimit"
)

const (
	checkPath     = "/v1/check"
	healthPath    = "/healthz"
	defaultPolicy = "default"
	maxBody       = 64 << 10
)

// Handler answers checks, and the few pages around them. It is safe for concurrent use.
type Handler struct {
	policies map[string]*answering
	names    []string
	draining atomic.Bool
	rejected atomic.Int64
	// configured is nil without a configuration.
	configured *configured
}

// answering is a policy with what is the same in all of its answers.
type answering struct {
	limiter *weir.Keyed[string]
	told    *httplimit.Policies
	json    string // its name
}

// New answers a handler for the policies of set. A policy whose name cannot stand in a header field is an error.
func New(set *policies.Set) (*Handler, error) {
	h := &Handler{policies: make(map[string]*answering)}
	for _, p := range set.All() {
		told, err := tellable(p)
		if err != nil {
			return nil, err
		}
		name, err := json.Marshal(p.Name)
		if err != nil {
			return nil, fmt.Errorf("weir: policy %.40q: %w", p.Name, err)
		}
		h.policies[p.Name] = &answering{p.Limiter, told, string(name)}
		h.names = append(h.names, p.Name)
	}
	return h, nil
}

// Drain makes /healthz answer 503 from now on. Checks are answered as before.
func (h *Handler) Drain() { h.draining.Store(true) }

// Rejected is how many requests could not be answered, because they were wrong.
func (h *Handler) Rejected() int64 { return h.rejected.Load() }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p := h.page(r.URL.Path)(w, r); p != nil {
		h.rejected.Add(1)
		p.write(w)
	}
}

// page is what answers at path.
func (h *Handler) page(path string) func(http.ResponseWriter, *http.Request) *problem {
	switch path {
	case checkPath:
		return h.check
	case healthPath:
		return h.health
	case "/":
		return h.about
	}
	if h.configured != nil {
		switch path {
		case decidePath:
			return h.decide
		case explainPath:
			return h.explain
		case statusPath:
			return h.status
		case reloadPath:
			return h.reload
		case quotaPath:
			return h.quota
		case adjustPath:
			return h.adjust
		case adjustmentsPath:
			return h.adjustments
		}
	}
	return h.missing
}

// missing answers at all other paths.
func (h *Handler) missing(http.ResponseWriter, *http.Request) *problem {
	pages := "POST " + checkPath
	if h.configured != nil {
		pages += ", POST " + decidePath + ", POST " + explainPath + ", GET " + statusPath + ", POST " + reloadPath +
			", GET " + quotaPath + ", POST " + adjustPath + ", GET " + adjustmentsPath
	}
	return &problem{
		Status: http.StatusNotFound,
		Detail: "there is no such page; there are " + pages + ", GET " + healthPath + " and GET /",
	}
}

// buffers hold bodies of requests, and then of responses.
var buffers = sync.Pool{New: func() any { return new([512]byte) }}

var jsonType = []string{"application/json"}

// check answers POST /v1/check, or the problem with it.
func (h *Handler) check(w http.ResponseWriter, r *http.Request) *problem {
	if r.Method != http.MethodPost {
		return methodProblem(w, r, "POST")
	}
	if p := contentProblem(r); p != nil {
		return p
	}
	small, _ := buffers.Get().(*[512]byte)
	defer buffers.Put(small)
	body, p := readBody(r, small[:0])
	if p != nil {
		return p
	}
	ask, err := decode(body)
	if err != nil {
		return badBody(err)
	}
	if ask.policy == nil {
		ask.policy = []byte(defaultPolicy)
	}
	if len(ask.key) == 0 && (h.configured == nil || !h.configured.limits.MayLackKey(string(ask.policy))) {
		return badBody(noKey())
	}
	if h.configured != nil {
		// The key may still stand in small.
		return h.checkConfigured(w, r, ask, nil)
	}
	policy, ok := h.policies[string(ask.policy)]
	if !ok {
		return unknownPolicy(ask.policy, h.names)
	}
	d := policy.limiter.Take(string(ask.key), ask.cost)

	header := w.Header()
	header["Content-Type"] = jsonType
	tell(header, policy.told, d)
	if !d.Allowed {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	// If the client is gone, nobody is there to be told.
	_, _ = w.Write(append(appendDecision(small[:0], d, policy.json, true), "}\n"...))
	return nil
}

// readBody reads the body into space, or into a larger one.
func readBody(r *http.Request, space []byte) ([]byte, *problem) {
	if r.ContentLength > maxBody {
		return nil, tooLarge()
	}
	body := space
	for {
		if len(body) == cap(body) {
			if len(body) > maxBody {
				return nil, tooLarge()
			}
			body = append(make([]byte, 0, min(max(4*cap(body), 512), maxBody+1)), body...)
		}
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return body, nil
		default:
			return nil, &problem{Status: http.StatusBadRequest, Detail: "the body could not be read: " + err.Error()}
		}
	}
}

func tooLarge() *problem {
	return newProblem(http.StatusRequestEntityTooLarge, "body", "", "must be at most 65536 bytes")
}

// sameOrigin knows requests that a page of another origin makes a browser send.
var sameOrigin = http.NewCrossOriginProtection()

// contentProblem is what is wrong with the type of the content, if anything. It should be JSON in UTF-8, which a web
// page of another origin cannot send unless the server allows it. No type, and that which curl -d sends for lack of a
// better one, are taken for JSON too, but not from such a page: nobody's permits are used up by a page that he visits.
func contentProblem(r *http.Request) *problem {
	values := r.Header["Content-Type"]
	if len(values) == 1 && values[0] == "application/json" {
		return nil
	}
	if len(values) <= 1 {
		kind, parameters, err := "application/x-www-form-urlencoded", map[string]string(nil), error(nil)
		if len(values) == 1 {
			kind, parameters, err = mime.ParseMediaType(values[0])
		}
		charset, given := parameters["charset"]
		switch {
		case err != nil, given && !strings.EqualFold(charset, "utf-8"):
		case kind == "application/json":
			return nil
		case kind == "application/x-www-form-urlencoded":
			if err := sameOrigin.Check(r); err != nil {
				return newProblem(http.StatusForbidden, "Origin", excerpt([]byte(r.Header.Get("Origin"))),
					"must be that of the server, or the Content-Type must be application/json")
			}
			return nil
		}
	}
	return newProblem(http.StatusUnsupportedMediaType, "Content-Type", excerpt([]byte(r.Header.Get("Content-Type"))),
		"must be application/json")
}
