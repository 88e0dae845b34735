package dashboard_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/front/dashboard"
)

// answer is what was answered.
type answer struct {
	StatusCode int
	Header     http.Header
	body       string
}

// handler is made once: it packs each file once.
var handler = sync.OnceValue(dashboard.Handler)

// get asks for a file, with header fields by name.
func get(t *testing.T, method, path string, header map[string]string) *answer {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
	for name, value := range header {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	handler().ServeHTTP(w, r)
	return &answer{w.Code, w.Header(), w.Body.String()}
}

func TestFiles(t *testing.T) {
	for path, kind := range map[string]string{
		"/ui/": "text/html; charset=utf-8", "/ui/index.html": "text/html; charset=utf-8", "/ui/weir.css": "text/css; charset=utf-8",
		"/ui/js/app.js": "text/javascript; charset=utf-8", "/ui/icon.svg": "image/svg+xml", "/ui/uplot/LICENSE": "text/plain; charset=utf-8",
	} {
		r := get(t, http.MethodGet, path, nil)
		if r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != kind || r.body == "" {
			t.Errorf("%s: %d %v", path, r.StatusCode, r.Header)
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": dashboard.Policy, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache",
			"Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		// Asked again, nothing is sent.
		again := get(t, http.MethodGet, path, map[string]string{"If-None-Match": `"other", W/` + r.Header.Get("ETag")})
		if again.StatusCode != http.StatusNotModified || again.body != "" || again.Header.Get("ETag") != r.Header.Get("ETag") {
			t.Errorf("%s, again: %d %v", path, again.StatusCode, again.Header)
		}
		head := get(t, http.MethodHead, path, nil)
		if head.StatusCode != http.StatusOK || head.body != "" || head.Header.Get("Content-Length") != r.Header.Get("Content-Length") {
			t.Errorf("%s, only the header: %d %v", path, head.StatusCode, head.Header)
		}
	}
}

// TestPolicyIsStrict: what a page may do is written down here once more, so that it is not loosened by the way.
func TestPolicyIsStrict(t *testing.T) {
	want := map[string]string{
		"default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "img-src": "'self' data:", "connect-src": "'self'",
		"base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'", "require-trusted-types-for": "'script'",
		"trusted-types": "'none'",
	}
	for directive := range strings.SplitSeq(get(t, http.MethodGet, "/ui/", nil).Header.Get("Content-Security-Policy"), ";") {
		name, sources, _ := strings.Cut(strings.TrimSpace(directive), " ")
		if allowed, ok := want[name]; !ok || sources != allowed {
			t.Errorf("%s is %s, want %s", name, sources, allowed)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("it lacks %v", want)
	}
}

func TestGzip(t *testing.T) {
	plain := get(t, http.MethodGet, "/ui/js/app.js", map[string]string{"Accept-Encoding": "br, gzip;q=0"})
	packed := get(t, http.MethodGet, "/ui/js/app.js", map[string]string{"Accept-Encoding": "br, gzip"})
	if plain.Header.Get("Content-Encoding") != "" || packed.Header.Get("Content-Encoding") != "gzip" ||
		plain.Header.Get("ETag") == packed.Header.Get("ETag") || packed.Header.Get("Vary") != "Accept-Encoding" {
		t.Fatalf("%v\n%v", plain.Header, packed.Header)
	}
	unpack, err := gzip.NewReader(strings.NewReader(packed.body))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unpack)
	if err != nil || string(text) != plain.body {
		t.Errorf("what is packed is something else (%v)", err)
	}
}

func TestNothingElse(t *testing.T) {
	for _, path := range []string{"/ui/js/", "/ui/../go.mod", "/ui/static/index.html", "/ui/%2e%2e/doc.go", "/ui/nothing", "/other/index.html"} {
		r := get(t, http.MethodGet, path, nil)
		if r.StatusCode != http.StatusNotFound || r.Header.Get("Content-Security-Policy") == "" {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
	r := get(t, http.MethodPost, "/ui/", nil)
	if r.StatusCode != http.StatusMethodNotAllowed || r.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d %v", r.StatusCode, r.Header)
	}
}

// TestNoMarkup looks for what makes markup of text, or reaches other hosts, in the files that are our own.
func TestNoMarkup(t *testing.T) {
	wrong := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|createContextualFragment|` +
		`\bon[a-z]+="|<style|style=|javascript:|https?://|(?:src|href|action)=["']?//|url\(`)
	err := filepath.WalkDir("static", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(path, "static/uplot/") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, found := range wrong.FindAllString(strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", ""), -1) {
			t.Errorf("%s has %q", path, found)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
