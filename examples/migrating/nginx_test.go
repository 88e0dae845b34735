package migrating_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/programtest"
)

// startNginx starts nginx with a file of the directory nginx in its http block, in which addresses stand for others.
func startNginx(t *testing.T, file, address string, replace ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("nginx", file))
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range replaced(replace) {
		if !strings.Contains(string(text), from) {
			t.Fatalf("%s is not in %s", from, file)
		}
	}
	programtest.Nginx(t, address, strings.NewReplacer(replace...).Replace(string(text)))
}

// replaced are those of pairs that are replaced.
func replaced(pairs []string) (from []string) {
	for i := 0; i < len(pairs); i += 2 {
		from = append(from, pairs[i])
	}
	return from
}

// TestNginxLimitReq sends requests to nginx with limit_req and to nginx that asks weir, as fast as they answer, for more than
// two seconds: both allow 21 at once and 10 a second, and refuse the others with 429.
func TestNginxLimitReq(t *testing.T) {
	served := make(map[string]int)
	app := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { served[r.URL.Path]++ }))
	defer app.Close()
	behind := app.Listener.Addr().String()
	limitReq, authRequest, weir := programtest.FreeAddress(t), programtest.FreeAddress(t), programtest.FreeAddress(t)
	startWeir(t, weir, "--http", weir, "--config", filepath.Join("nginx", "weir.yaml"))
	startNginx(t, "before.conf", limitReq, "127.0.0.1:8080", limitReq, "127.0.0.1:3000", behind)
	startNginx(t, "after.conf", authRequest, "127.0.0.1:8080", authRequest, "127.0.0.1:3000", behind, "127.0.0.1:7070", weir)

	var old, now tally
	ask := func(c *tally, address, path string) (retryAfter string) {
		asked := time.Now()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body) // so that the connection is used again
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusTooManyRequests {
			t.Fatalf("%s: status %d", path, answer.StatusCode)
		}
		c.add(asked, answer.StatusCode == http.StatusOK)
		if answer.StatusCode == http.StatusOK {
			return ""
		}
		return answer.Header.Get("Retry-After")
	}
	told := 0
	for begin := time.Now(); time.Since(begin) < 2200*time.Millisecond || told < 10; { // refusals of weir that say to come back in a second
		if retry := ask(&old, limitReq, "/before"); retry != "" {
			t.Errorf("limit_req says when to come back: %s", retry)
		}
		if ask(&now, authRequest, "/after") == "1" {
			told++
		}
	}
	// nginx counts in whole milliseconds by a clock that it reads once for each event.
	old.check(t, "limit_req", 21, 50*time.Millisecond)
	now.check(t, "weir", 21, time.Millisecond)
	if served["/before"] != old.admitted || served["/after"] != now.admitted {
		t.Errorf("%v have reached the service; %d and %d were admitted", served, old.admitted, now.admitted)
	}
}
