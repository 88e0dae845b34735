package adminapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

// The names of parameters, and of members of bodies.
const (
	inPolicy = "policy"
	inKey    = "key"
)

const acceptedReason = "must be at most 1024 bytes of printable text in UTF-8"

// keyIn makes the parameter key, if there is one, the key that is spelled so.
func keyIn(values url.Values) *answer.Problem {
	if !values.Has(inKey) {
		return nil
	}
	key := operator.KeyOf(values.Get(inKey))
	values.Set(inKey, key)
	return adminguard.WrongKey(key)
}

// policyNamed is the problem with the name of a policy, nil if there is one with it.
func (h *Handler) policyNamed(name string) *answer.Problem {
	if h.o.Limits.Has(name) {
		return nil
	}
	names := h.o.Limits.PolicyNames()
	slices.Sort(names)
	if name == "" {
		p := answer.BadField(http.StatusBadRequest, inPolicy, "", "must be the name of a policy")
		p.Policies = names
		return p
	}
	accepted := "there is no policy of this name"
	of, _, _ := strings.Cut(name, "/") // a limit is shown as policy/limit
	if nearest, ok := flags.Nearest(of, names); ok {
		accepted += fmt.Sprintf("; did you mean %q?", nearest)
	}
	p := answer.BadField(http.StatusNotFound, inPolicy, answer.Excerpt(name), accepted)
	p.Policies = names
	return p
}

// failed is the problem with what the engine was asked, nil if there is none.
func (h *Handler) failed(err error) *answer.Problem {
	if err == nil {
		return nil
	}
	text := strings.TrimPrefix(h.o.Limits.Clean(err.Error()), "weir: ")
	if wrong, ok := errors.AsType[*weir.OptionError](err); ok {
		return &answer.Problem{
			Status: http.StatusUnprocessableEntity, Detail: text, Field: wrong.Option, Value: h.o.Limits.Clean(wrong.Value),
			Accepted: wrong.Accepted,
		}
	}
	return answer.Later("%s", text)
}

// body reads the JSON object of a POST into v, strictly, and returns its text.
func body(r *http.Request, v any) ([]byte, *answer.Problem) {
	kind, of, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if charset := of["charset"]; err != nil || kind != "application/json" || charset != "" && !strings.EqualFold(charset,
		"utf-8") {
		return nil, answer.BadField(http.StatusUnsupportedMediaType, "Content-Type", answer.Excerpt(r.Header.Get("Content-Type")),
			"must be application/json")
	}
	return answer.Body(r, v)
}

// keyGiven is the problem with a change of a key that does not say which, nil if there is none: that of a policy with keys
// must be named, though it may be "".
func (h *Handler) keyGiven(name string, text []byte) *answer.Problem {
	var given struct {
		Key *string `json:"key"`
	}
	if json.Unmarshal(text, &given) == nil && given.Key != nil {
		return nil
	}
	if p := h.o.Limits.Policy(name); p != nil && p.Key != nil {
		return answer.BadField(http.StatusBadRequest, inKey, "",
			"must be there: keys of policy "+name+" are "+h.o.Limits.Clean(p.Key.String()))
	}
	return nil
}
