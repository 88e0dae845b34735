package adminapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
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
	if r.ContentLength > mostBody {
		return nil, tooLarge()
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, mostBody+1))
	if err != nil {
		return nil, answer.PlainProblem(http.StatusBadRequest, "the body could not be read: %s", err)
	}
	if len(text) > mostBody {
		return nil, tooLarge()
	}
	if !utf8.Valid(text) || halves(text) {
		return nil, answer.PlainProblem(http.StatusBadRequest,
			`the body must be UTF-8: of a key that is not, the byte e9 is \xe9, in JSON "\\xe9"`)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	err = decoder.Decode(v)
	if err == nil {
		if _, after := decoder.Token(); !errors.Is(after, io.EOF) {
			err = errors.New("expected nothing after the object")
		}
	}
	if err != nil {
		return nil, notAccepted(err, v)
	}
	return text, nil
}

// halves reports whether a text of JSON has an escape for half a character, which would be read as another character.
func halves(text []byte) bool {
	for rest := text; ; {
		at := bytes.IndexByte(rest, '\\')
		if at < 0 || at+1 >= len(rest) {
			return false
		}
		rest = rest[at:]
		if rest[1] != 'u' {
			rest = rest[2:]
			continue
		}
		switch first, second := escaped(rest), escaped(rest[min(len(rest), len(`\uffff`)):]); {
		case !utf16.IsSurrogate(first):
			rest = rest[2:]
		case utf16.DecodeRune(first, second) == unicode.ReplacementChar:
			return true
		default:
			rest = rest[2*len(`\uffff`):]
		}
	}
}

// escaped is the number of an escape at the beginning of a text, 0 if there is none.
func escaped(text []byte) rune {
	if len(text) < len(`\uffff`) || text[0] != '\\' || text[1] != 'u' {
		return 0
	}
	n, _ := strconv.ParseUint(string(text[2:len(`\uffff`)]), 16, 16) // 0 if it is none
	return rune(n)
}

func tooLarge() *answer.Problem {
	return answer.BadField(http.StatusRequestEntityTooLarge, "body", "", fmt.Sprintf("must be at most %d bytes", mostBody))
}

// notAccepted says why a body is none that v can be read from, in the words of JSON.
func notAccepted(err error, v any) *answer.Problem {
	const must = "the body must be a JSON object"
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		value, _, _ := strings.Cut(wrong.Value, " ") // behind it is the number
		if wrong.Field == "" {
			return answer.PlainProblem(http.StatusBadRequest, "%s, not %s", must, inJSON(value))
		}
		return answer.BadField(http.StatusBadRequest, wrong.Field, "", "must be "+kindInJSON(wrong.Type)+", not "+inJSON(value))
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	if name, ok := strings.CutPrefix(text, "unknown field "); ok {
		known := members(v)
		accepted := "is not known: there are " + strings.Join(known, ", ")
		if nearest, ok := flags.Nearest(strings.Trim(name, `"`), known); ok {
			accepted += fmt.Sprintf("; did you mean %q?", nearest)
		}
		return answer.BadField(http.StatusBadRequest, "member", answer.Excerpt(strings.Trim(name, `"`)), accepted)
	}
	switch {
	case errors.Is(err, io.EOF):
		return answer.PlainProblem(http.StatusBadRequest, "%s, and is empty", must)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return answer.PlainProblem(http.StatusBadRequest, "%s, and ends within it", must)
	default:
		return answer.PlainProblem(http.StatusBadRequest, "%s: %s", must, text)
	}
}

// inJSON is a kind of value with its article.
func inJSON(kind string) string {
	switch kind {
	case "array", "object":
		return "an " + kind
	case "bool":
		return "true or false"
	default:
		return "a " + kind
	}
}

// kindInJSON is the kind of value that a type is read from, with an example where it is not plain.
func kindInJSON(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	case reflect.Map:
		return `an object such as {"1m": "100/min"}`
	case reflect.Struct:
		return "an object"
	default:
		return "a string"
	}
}

// members are the names of what v can be read from, but for those that the server sets.
func members(v any) []string {
	var names []string
	for field := range reflect.TypeOf(v).Elem().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name != "by" && name != "since" {
			names = append(names, name)
		}
	}
	return names
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
	set := h.o.Limits.Engine().Set()
	for i := range set.Policies {
		if p := &set.Policies[i]; p.Name == name && p.Key != nil {
			return answer.BadField(http.StatusBadRequest, inKey, "",
				"must be there: keys of policy "+name+" are "+h.o.Limits.Clean(p.Key.String()))
		}
	}
	return nil
}
