package adminapi

import (
	"encoding/json"
	"mime"
	"net/http"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
)

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
