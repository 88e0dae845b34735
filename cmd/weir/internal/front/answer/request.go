package answer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/front/room"
)

// WriteJSON writes v as the JSON of a reply.
func WriteJSON(w http.ResponseWriter, v any) *Problem {
	text, err := json.Marshal(v)
	if err != nil {
		return PlainProblem(http.StatusInternalServerError, "%s", err)
	}
	Write(w, "application/json", append(text, '\n'))
	return nil
}

// Write writes a reply of a content type, which no cache may keep.
func Write(w http.ResponseWriter, kind string, text []byte) {
	header := w.Header()
	header["Content-Type"] = []string{kind}
	header["Cache-Control"] = []string{"no-store"}
	header["X-Content-Type-Options"] = []string{"nosniff"}
	header["Content-Length"] = []string{strconv.Itoa(len(text))}
	_, _ = w.Write(text) // a client that has gone is not told
}

// Parameters reads the query of a request, which must have no parameters but those that are accepted, each once.
func Parameters(r *http.Request, accepted ...string) (url.Values, *Problem) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, BadField(http.StatusBadRequest, "query", Excerpt(r.URL.RawQuery),
			"must be parameters such as policy=login&key=192.0.2.1")
	}
	for name, all := range values {
		switch {
		case len(accepted) == 0:
			return nil, BadField(http.StatusBadRequest, "parameter", Excerpt(name), "must not be there: there are none")
		case !slices.Contains(accepted, name):
			return nil, BadField(http.StatusBadRequest, "parameter", Excerpt(name), "must be "+strings.Join(accepted, " or "))
		case len(all) != 1:
			return nil, BadField(http.StatusBadRequest, name, "", "must be there once")
		}
	}
	return values, nil
}

// Count is a parameter that says how many of something are asked for.
func Count(values url.Values, name string, usual, most int) (int, *Problem) {
	text := values.Get(name)
	if text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, BadField(http.StatusBadRequest, name, Excerpt(text), fmt.Sprintf("must be a whole number from 1 to %d", most))
	}
	return n, nil
}

// large is the part of so many bytes of memory that a room bounds: a client can send all of a body but its last byte on each of
// its connections.
func large(size int) int64 { return int64(max(size-MaxBody-1, 0)) }

// FreeBody is to be called once a body that was read is not needed any more, if it counts to a room.
func FreeBody(bodies room.Share, body []byte) { bodies.Free(large(cap(body))) }

// grow returns a body with more memory, or the one that there is if there is no room for more.
func grow(bodies room.Share, body []byte, most int) ([]byte, bool) {
	size := min(max(4*cap(body), 512), most+1)
	if !bodies.Take(large(size) - large(cap(body))) {
		return body, false
	}
	return append(make([]byte, 0, size), body...), true
}

// ReadBody reads a body into space, or into a larger one, if it has no more than most bytes. What is beyond [MaxBody] counts to a
// share of a room until [FreeBody] is called. That may be the zero Share if most is not beyond it. A body that is compressed, or
// encoded in another way, is not read.
func ReadBody(r *http.Request, space []byte, most int, bodies room.Share) ([]byte, *Problem) {
	if coding := strings.Join(r.Header["Content-Encoding"], ", "); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, BadField(http.StatusUnsupportedMediaType, "Content-Encoding", Excerpt(coding),
			"must not be there: bodies are not compressed")
	}
	body, p := readBody(r, space, most, bodies)
	if p != nil && most > MaxBody {
		FreeBody(bodies, body)
		body = nil
	}
	return body, p
}

func readBody(r *http.Request, space []byte, most int, bodies room.Share) ([]byte, *Problem) {
	tooLarge := func() *Problem {
		return BadField(http.StatusRequestEntityTooLarge, "body", "", fmt.Sprintf("must be at most %d bytes", most))
	}
	if r.ContentLength > int64(most) {
		return space, tooLarge()
	}
	body := space
	for {
		if len(body) == cap(body) {
			if len(body) > most {
				return body, tooLarge()
			}
			var grown bool
			if body, grown = grow(bodies, body, most); !grown {
				return body, Later("there are too many large bodies: must have at most %d bytes now", MaxBody)
			}
		}
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) && len(body) > most:
			return body, tooLarge()
		case errors.Is(err, io.EOF):
			return body, nil
		default:
			return body, PlainProblem(http.StatusBadRequest, "the body could not be read: %s", err)
		}
	}
}

// MaxBody is how many bytes the body of a request has at most.
const MaxBody = 64 << 10

// Body reads the JSON object of a POST into v, strictly, and returns its text. Errors do not name members of v with the tag
// set:"server".
func Body(r *http.Request, v any) ([]byte, *Problem) {
	text, p := ReadBody(r, nil, MaxBody, room.Share{})
	if p != nil {
		return nil, p
	}
	if !utf8.Valid(text) || halves(text) {
		return nil, PlainProblem(http.StatusBadRequest,
			`the body must be UTF-8: of a key that is not, the byte e9 is \xe9, in JSON "\\xe9"`)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(v)
	if err == nil {
		if _, after := decoder.Token(); !errors.Is(after, io.EOF) {
			err = errors.New("expected nothing after the object")
		}
	}
	if err != nil {
		return nil, notAccepted(err, v)
	}
	decoder = json.NewDecoder(bytes.NewReader(text))
	if p := once(decoder, members(v, true)); p != nil {
		return nil, p
	}
	return text, nil
}

// once finds a name in the objects of a text that stands in its object twice, or that is not one of known in the outermost one.
// The text can be read from an object: of such names encoding/json takes the last, and it does not mind their case.
func once(decoder *json.Decoder, known []string) *Problem {
	open, _ := decoder.Token()
	if _, ok := open.(json.Delim); !ok {
		return nil
	}
	names := make(map[string]bool)
	for decoder.More() {
		if open == json.Delim('{') {
			token, _ := decoder.Token()
			name, _ := token.(string)
			switch {
			case names[name]:
				return BadField(http.StatusBadRequest, "member", Excerpt(name), "must be there once")
			case known != nil && !slices.Contains(known, name):
				return BadField(http.StatusBadRequest, "member", Excerpt(name), "must be one of "+strings.Join(known, ", "))
			}
			names[name] = true
		}
		if p := once(decoder, nil); p != nil {
			return p
		}
	}
	_, _ = decoder.Token() // the end of it
	return nil
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

// notAccepted says why a body is none that v can be read from, in the words of JSON.
func notAccepted(err error, v any) *Problem {
	const must = "the body must be a JSON object"
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		value, number, odd := strings.Cut(wrong.Value, " ")
		not := inJSON(value)
		if odd { // it is not whole, or too large
			not = fmt.Sprintf("%.40s", number)
		}
		if wrong.Field == "" {
			return PlainProblem(http.StatusBadRequest, "%s, not %s", must, not)
		}
		return BadField(http.StatusBadRequest, wrong.Field, "", "must be "+kindInJSON(wrong.Type)+", not "+not)
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	if name, ok := strings.CutPrefix(text, "unknown field "); ok {
		known := members(v, false)
		accepted := "is not known: there are " + strings.Join(known, ", ")
		if nearest, ok := flags.Nearest(strings.Trim(name, `"`), known); ok {
			accepted += fmt.Sprintf("; did you mean %q?", nearest)
		}
		return BadField(http.StatusBadRequest, "member", Excerpt(strings.Trim(name, `"`)), accepted)
	}
	switch {
	case errors.Is(err, io.EOF):
		return PlainProblem(http.StatusBadRequest, "%s, and is empty", must)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return PlainProblem(http.StatusBadRequest, "%s, and ends within it", must)
	default:
		return PlainProblem(http.StatusBadRequest, "%s: %s", must, text)
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
	case reflect.Int64:
		return "a whole number"
	case reflect.Map:
		return `an object such as {"1m": "100/min"}`
	case reflect.Struct:
		return "an object"
	default:
		return "a string"
	}
}

// members are the names of what v can be read from, with those that the server sets or without.
func members(v any, all bool) []string {
	var names []string
	for field := range reflect.TypeOf(v).Elem().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if all || field.Tag.Get("set") == "" {
			names = append(names, name)
		}
	}
	return names
}
