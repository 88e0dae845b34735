package adminapi

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/admin"
	"github.com/weirhq/weir/cmd/weir/internal/front/problem"
)

// The names of parameters, and of members of bodies.
const (
	inPolicy = "policy"
	inKey    = "key"
)

const (
	mostBody      = 64 << 10
	longestKey    = 1024
	longestReason = 1024
	longestPolicy = 128

	acceptedKey    = `must be a string of at most 1024 bytes, where \xe9 is the byte e9 of a key that is not UTF-8`
	acceptedReason = "must be at most 1024 bytes of printable text in UTF-8"
)

// parameters reads the query of a page, which must have none but those that are accepted, each once. A key is that which is
// spelled so.
func parameters(r *http.Request, accepted ...string) (url.Values, *problem.Problem) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, problem.Of(http.StatusBadRequest, "query", problem.Excerpt(r.URL.RawQuery),
			"must be parameters such as policy=login&key=192.0.2.1")
	}
	for name, all := range values {
		switch {
		case len(accepted) == 0:
			return nil, problem.Of(http.StatusBadRequest, "parameter", problem.Excerpt(name), "must not be there: there are none")
		case !slices.Contains(accepted, name):
			return nil, problem.Of(http.StatusBadRequest, "parameter", problem.Excerpt(name),
				"must be "+strings.Join(accepted, " or "))
		case len(all) != 1:
			return nil, problem.Of(http.StatusBadRequest, name, "", "must be there once")
		}
	}
	if values.Has(inKey) {
		key := admin.KeyOf(values.Get(inKey))
		if len(key) > longestKey {
			return nil, problem.Of(http.StatusBadRequest, inKey, problem.Excerpt(key), acceptedKey)
		}
		values.Set(inKey, key)
	}
	return values, nil
}

// count is the parameter n.
func count(values url.Values, usual, most int) (int, *problem.Problem) {
	text := values.Get("n")
	if text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, problem.Of(http.StatusBadRequest, "n", problem.Excerpt(text),
			fmt.Sprintf("must be a whole number from 1 to %d", most))
	}
	return n, nil
}

// policyNamed is the problem with the name of a policy, nil if there is one with it.
func (h *Handler) policyNamed(name string) *problem.Problem {
	if h.o.Limits.Has(name) {
		return nil
	}
	set := h.o.Limits.Engine().Set()
	names := make([]string, len(set.Policies))
	for i := range set.Policies {
		names[i] = set.Policies[i].Name
	}
	slices.Sort(names)
	if name == "" {
		p := problem.Of(http.StatusBadRequest, inPolicy, "", "must be the name of a policy")
		p.Policies = names
		return p
	}
	p := problem.Of(http.StatusNotFound, inPolicy, problem.Excerpt(name),
		"must be the name of a policy, and there is none with it")
	p.Policies = names
	return p
}

// failed is the problem with what the engine was asked.
func (h *Handler) failed(w http.ResponseWriter, err error) *problem.Problem {
	text := strings.TrimPrefix(h.o.Limits.Clean(err.Error()), "weir: ")
	if wrong, ok := errors.AsType[*weir.OptionError](err); ok {
		return &problem.Problem{
			Status: http.StatusUnprocessableEntity, Detail: text, Field: wrong.Option, Value: h.o.Limits.Clean(wrong.Value),
			Accepted: wrong.Accepted,
		}
	}
	w.Header().Set("Retry-After", "1")
	return problem.Plain(http.StatusServiceUnavailable, "%s", text)
}
