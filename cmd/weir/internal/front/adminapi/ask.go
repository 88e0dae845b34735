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
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
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
func parameters(r *http.Request, accepted ...string) (url.Values, *answer.Problem) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, answer.BadField(http.StatusBadRequest, "query", answer.Excerpt(r.URL.RawQuery),
			"must be parameters such as policy=login&key=192.0.2.1")
	}
	for name, all := range values {
		switch {
		case len(accepted) == 0:
			return nil, answer.BadField(http.StatusBadRequest, "parameter", answer.Excerpt(name),
				"must not be there: there are none")
		case !slices.Contains(accepted, name):
			return nil, answer.BadField(http.StatusBadRequest, "parameter", answer.Excerpt(name),
				"must be "+strings.Join(accepted, " or "))
		case len(all) != 1:
			return nil, answer.BadField(http.StatusBadRequest, name, "", "must be there once")
		}
	}
	if values.Has(inKey) {
		key := operator.KeyOf(values.Get(inKey))
		if len(key) > longestKey {
			return nil, answer.BadField(http.StatusBadRequest, inKey, answer.Excerpt(key), acceptedKey)
		}
		values.Set(inKey, key)
	}
	return values, nil
}

// count is the parameter n.
func count(values url.Values, usual, most int) (int, *answer.Problem) {
	text := values.Get("n")
	if text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, answer.BadField(http.StatusBadRequest, "n", answer.Excerpt(text),
			fmt.Sprintf("must be a whole number from 1 to %d", most))
	}
	return n, nil
}

// policyNamed is the problem with the name of a policy, nil if there is one with it.
func (h *Handler) policyNamed(name string) *answer.Problem {
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
		p := answer.BadField(http.StatusBadRequest, inPolicy, "", "must be the name of a policy")
		p.Policies = names
		return p
	}
	p := answer.BadField(http.StatusNotFound, inPolicy, answer.Excerpt(name),
		"must be the name of a policy, and there is none with it")
	p.Policies = names
	return p
}

// failed is the problem with what the engine was asked.
func (h *Handler) failed(err error) *answer.Problem {
	text := strings.TrimPrefix(h.o.Limits.Clean(err.Error()), "weir: ")
	if wrong, ok := errors.AsType[*weir.OptionError](err); ok {
		return &answer.Problem{
			Status: http.StatusUnprocessableEntity, Detail: text, Field: wrong.Option, Value: h.o.Limits.Clean(wrong.Value),
			Accepted: wrong.Accepted,
		}
	}
	return answer.Later("%s", text)
}
