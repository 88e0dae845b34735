package httplimit_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirhq/weir/httplimit"
)

func constant(key string) httplimit.KeyFunc {
	return func(*http.Request) (string, error) { return key, nil }
}

func keyOf(t *testing.T, key httplimit.KeyFunc, r *http.Request) string {
	t.Helper()
	k, err := key(r)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestByHeader(t *testing.T) {
	r := request(http.MethodGet, "http://shop.example/")
	r.Header.Add("X-Api-Key", "first")
	r.Header.Add("X-Api-Key", "second")
	for name, want := range map[string]string{"x-api-key": "first", "X-Other": "", "host": "shop.example"} {
		if got := keyOf(t, httplimit.ByHeader(name), r); got != want {
			t.Errorf("ByHeader(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestByPattern(t *testing.T) {
	mux := http.NewServeMux()
	var inside string
	mux.HandleFunc("GET /items/{id}", func(_ http.ResponseWriter, r *http.Request) {
		inside = keyOf(t, httplimit.ByPattern(nil), r)
	})
	r := request(http.MethodGet, "/items/7")
	if got := keyOf(t, httplimit.ByPattern(nil), r); got != "" {
		t.Errorf("before the ServeMux without asking it: %q", got)
	}
	if got := keyOf(t, httplimit.ByPattern(mux), r); got != "GET /items/{id}" {
		t.Errorf("before the ServeMux: %q", got)
	}
	mux.ServeHTTP(httptest.NewRecorder(), r)
	if inside != "GET /items/{id}" {
		t.Errorf("inside of the ServeMux: %q", inside)
	}
	none := request(http.MethodGet, "/nothing")
	if got := keyOf(t, httplimit.ByPattern(mux), none); got != "" {
		t.Errorf("no route: %q", got)
	}
}

func TestByAllKeepsCombinationsApart(t *testing.T) {
	seen := map[string][]string{}
	for _, parts := range [][]string{
		{""},
		{"", ""},
		{"a"},
		{"a", ""},
		{"", "a"},
		{"a", "b"},
		{"ab"},
		{"a:b"},
		{"1:a"},
		{"1:a", "b"},
		{"a1:b"},
		{"a", "1:b"},
	} {
		keys := make([]httplimit.KeyFunc, 0, len(parts))
		for _, p := range parts {
			keys = append(keys, constant(p))
		}
		k := keyOf(t, httplimit.ByAll(keys...), nil)
		if other, ok := seen[k]; ok {
			t.Errorf("%q and %q have the same key %q", parts, other, k)
		}
		seen[k] = parts
	}
}

func TestByFirst(t *testing.T) {
	byKey := httplimit.ByFirst(httplimit.ByHeader("X-Api-Key"), byClient(t, httplimit.ClientOptions{}))
	with := request(http.MethodGet, "/")
	with.Header.Set("X-Api-Key", "192.0.2.1")
	without := request(http.MethodGet, "/") // from 192.0.2.1
	if got := keyOf(t, byKey, with); got != "0:192.0.2.1" {
		t.Errorf("with an API key: %q", got)
	}
	if got := keyOf(t, byKey, without); got != "1:192.0.2.1" {
		t.Errorf("without: %q, which must differ from that of an API key of the same text", got)
	}
	if got := keyOf(t, httplimit.ByFirst(constant("")), without); got != "" {
		t.Errorf("no key at all: %q", got)
	}
}

func TestKeysPassErrorsOn(t *testing.T) {
	broken := errors.New("no session")
	fails := func(*http.Request) (string, error) { return "", broken }
	for name, key := range map[string]httplimit.KeyFunc{
		"ByAll": httplimit.ByAll(constant("a"), fails), "ByFirst": httplimit.ByFirst(constant(""), fails),
	} {
		if _, err := key(nil); !errors.Is(err, broken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestKeysPanicWhereTheyAreMade has mistakes that would otherwise be found by the first request, or never.
func TestKeysPanicWhereTheyAreMade(t *testing.T) {
	for want, call := range map[string]func(){
		"weir: httplimit: ByAll(): must be given one key at least":             func() { httplimit.ByAll() },
		"weir: httplimit: ByFirst(): must be given one key at least":           func() { httplimit.ByFirst(nil...) },
		"weir: httplimit: ByAll: key 2 of 2 is nil: must be a function":        func() { httplimit.ByAll(constant("a"), nil) },
		"weir: httplimit: ByFirst: key 1 of 1 is nil: must be a function":      func() { httplimit.ByFirst(nil) },
		`weir: httplimit: ByHeader(""): must be the name of a header field`:    func() { httplimit.ByHeader("") },
		`weir: httplimit: ByHeader("X Key"): must be the name of a header fie`: func() { httplimit.ByHeader("X Key") },
		`weir: httplimit: ByHeader("Key:"): must be the name of a header fiel`: func() { httplimit.ByHeader("Key:") },
		`weir: httplimit: ByHeader("Schlüssel"): must be the name of a header`: func() { httplimit.ByHeader("Schlüssel") },
	} {
		func() {
			defer func() {
				if text, ok := recover().(string); !ok || !strings.HasPrefix(text, want) {
					t.Errorf("panic %q, want %q", text, want)
				}
			}()
			call()
		}()
	}
}

// TestKeysAreCopied changes the slice after the key has been made of it.
func TestKeysAreCopied(t *testing.T) {
	keys := []httplimit.KeyFunc{constant("a")}
	all, first := httplimit.ByAll(keys...), httplimit.ByFirst(keys...)
	keys[0] = nil
	if a, f := keyOf(t, all, nil), keyOf(t, first, nil); a != "1:a" || f != "0:a" {
		t.Errorf("keys %q and %q", a, f)
	}
}

// TestLongKeysAreBounded sends keys of a megabyte and looks at what the limiter gets to see.
func TestLongKeysAreBounded(t *testing.T) {
	keyed := &recordingKeyed{}
	handler := limit(t, httplimit.Options{Keyed: keyed, Key: httplimit.ByHeader("X-Api-Key")})(ok)
	long := strings.Repeat("x", 1<<20)
	for _, key := range []string{strings.Repeat("x", 256), long, long + "y", long} {
		r := request(http.MethodGet, "/")
		r.Header.Set("X-Api-Key", key)
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	if keyed.keys[0] != strings.Repeat("x", 256) {
		t.Errorf("a key of 256 bytes became %q", keyed.keys[0])
	}
	for _, k := range keyed.keys[1:] {
		if len(k) > 64 || !strings.HasPrefix(k, "\x00") {
			t.Errorf("a key of a megabyte became %q", k)
		}
	}
	if keyed.keys[1] == keyed.keys[2] || keyed.keys[1] != keyed.keys[3] {
		t.Errorf("keys are mixed up: %q", keyed.keys[1:])
	}
}
