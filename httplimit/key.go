package httplimit

import (
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/internal/keytext"
)

// KeyFunc returns the key of a request, the name under which it is limited. It is called once for each request. A request for
// which it returns a [KeyError] is refused with its Status. Any other error is logged, and the status is 500. "" is a key like
// any other, shared by all requests that have it.
//
// Keys of more than 256 bytes are replaced by their SHA-256, so that clients cannot fill the memory with long ones. A key that is
// a part of a larger string keeps that in memory: clone it.
type KeyFunc func(*http.Request) (string, error)

// KeyError is the error of a [KeyFunc] for a request that is refused because it has no key.
type KeyError struct {
	// Status is the status code: from 400 to 599. Others are replaced by 500, and logged.
	Status int
	// Detail is the reason for the client. It must not contain anything secret.
	Detail string
}

// Error returns the status and the detail.
func (e *KeyError) Error() string {
	return fmt.Sprintf("weir: httplimit: the request has no key (status %d): %.200s", e.Status, e.Detail)
}

// ByHeader keys requests by the first value of a header field; requests without it share the key "". [RequireHeader] refuses
// them.
//
// Use it only for fields that have been checked before, such as an API key that is known to be valid: a client that can choose
// the value at will gets a new limit with each value.
//
// ByHeader panics if name cannot be that of a header field: "" or with a character such as a space, a colon or a line break. No
// request would have it, and all would share one limit.
func ByHeader(name string) KeyFunc {
	name = fieldName("ByHeader", name)
	if name == "Host" {
		return func(r *http.Request) (string, error) { return r.Host, nil }
	}
	return func(r *http.Request) (string, error) {
		if values := r.Header[name]; len(values) > 0 {
			return values[0], nil
		}
		return "", nil
	}
}

// RequireHeader is ByHeader for a field that every request must have, once and not empty: all others are refused with 401
// (Unauthorized), whatever the limit is. To send WWW-Authenticate, or to use another status, set OnRefused.
func RequireHeader(name string) KeyFunc {
	name = fieldName("RequireHeader", name)
	missing := &KeyError{http.StatusUnauthorized, "The request must have the header field " + name + ", once and not empty."}
	return func(r *http.Request) (string, error) {
		if name == "Host" && r.Host != "" {
			return r.Host, nil
		}
		if values := r.Header[name]; len(values) == 1 && values[0] != "" {
			return values[0], nil
		}
		return "", missing
	}
}

// fieldName is the canonical form of name. It panics where no header field can have it.
func fieldName(call, name string) string {
	if name == "" || strings.ContainsFunc(name, isNoToken) {
		panic(fmt.Sprintf("weir: httplimit: %s(%.40q): must be the name of a header field, such as X-Api-Key", call, name))
	}
	return textproto.CanonicalMIMEHeaderKey(name)
}

// isNoToken reports whether c cannot stand in the name of a header field (RFC 9110, 5.6.2).
func isNoToken(c rune) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return false
	}
	return !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}

// ByPattern keys requests by the pattern of the route that serves them, such as "GET /items/{id}". An [http.ServeMux]
// sets it in the request, for the handlers that it calls. A middleware around the ServeMux comes before that, so it must
// say which one to ask; nil is right inside of it. Requests that match no route share the key "".
func ByPattern(mux *http.ServeMux) KeyFunc {
	return func(r *http.Request) (string, error) {
		if r.Pattern == "" && mux != nil {
			_, pattern := mux.Handler(r)
			return pattern, nil
		}
		return r.Pattern, nil
	}
}

// ByAll keys requests by several keys together, such as client and route. No two different combinations have the same
// key, whatever is in them. It panics if there is none, which would be one key for all requests, and if one is nil.
func ByAll(keys ...KeyFunc) KeyFunc {
	keys = present("ByAll", keys)
	return func(r *http.Request) (string, error) {
		var scratch [2 * keytext.MaxWhole]byte
		all := scratch[:0]
		for _, k := range keys {
			key, err := k(r)
			if err != nil {
				return "", err
			}
			all = strconv.AppendInt(all, int64(len(key)), 10)
			all = append(all, ':')
			all = append(all, key...)
		}
		return string(all), nil
	}
}

// ByFirst keys requests by the first of several keys that is not "", such as an API key, or else the address of the client. Keys
// from different functions are never the same. It panics if there is none, and if one is nil.
func ByFirst(keys ...KeyFunc) KeyFunc {
	keys = present("ByFirst", keys)
	return func(r *http.Request) (string, error) {
		for i, k := range keys {
			key, err := k(r)
			if err != nil {
				return "", err
			}
			if key != "" {
				return strconv.Itoa(i) + ":" + key, nil
			}
		}
		return "", nil
	}
}

// present is a copy of keys, of which the caller may change its own. It panics where a request would do so later.
func present(call string, keys []KeyFunc) []KeyFunc {
	if len(keys) == 0 {
		panic("weir: httplimit: " + call + "(): must be given one key at least")
	}
	for i, k := range keys {
		if k == nil {
			panic(fmt.Sprintf("weir: httplimit: %s: key %d of %d is nil: must be a function", call, i+1, len(keys)))
		}
	}
	return slices.Clone(keys)
}
