package httplimit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// shown is the text of an answer as docs/http.md shows it: without Date and Content-Length, in order of the names.
func shown(t *testing.T, a answer) string {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "%s %d %s\n", a.proto, a.status, http.StatusText(a.status))
	for _, name := range slices.Sorted(maps.Keys(a.header)) {
		if name != "Date" && name != "Content-Length" {
			fmt.Fprintf(&text, "%s: %s\n", name, strings.Join(a.header[name], "\n"+name+": "))
		}
	}
	return text.String()
}

// serve sends requests to a handler over a connection, and returns the last answer.
func serve(t *testing.T, h http.Handler, requests int, accept string) (last answer) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Accept", accept)
		h.ServeHTTP(w, r)
	}))
	defer server.Close()
	for range requests {
		last = fetch(t, server, http.MethodGet)
	}
	return last
}

// TestDocsShowTrueAnswers compares all answers that docs/http.md shows with those of a server.
func TestDocsShowTrueAnswers(t *testing.T) {
	admitted := serve(t, limit(t, httplimit.Options{Keyed: perClient(t, 20)})(ok), 1, "")
	refused := serve(t, limit(t, httplimit.Options{Keyed: perClient(t, 20)})(ok), 21, "")
	text := serve(t, limit(t, httplimit.Options{Keyed: perClient(t, 20)})(ok), 21, "text/plain")
	trio := serve(t, limit(t, httplimit.Options{
		Keyed: perClient(t, 20), Headers: ratelimitfields.Headers{Fields: ratelimitfields.RateLimit11 | ratelimitfields.XRateLimit},
	})(ok), 1, "")
	four := slots(t, 4, weir.Options{Name: "slots"})
	four.TryAcquire(4)
	busy := serve(t, limit(t, httplimit.Options{Limiter: four})(ok), 1, "")
	mux := http.NewServeMux()
	mux.Handle("/", ok)
	rules, err := serveByRules(apiSet(), policy.EngineOptions{}, mux)
	if err != nil {
		t.Fatal(err)
	}
	byRules := serve(t, rules, 1, "")
	mistaken, err := httplimit.NewMux(httplimit.MuxOptions{Set: apiSet()})
	if err != nil {
		t.Fatal(err)
	}
	mistaken.Handle("GET /items", ok, httplimit.WithPolicy("per-cleint"))
	_, mistake := mistaken.Handler()
	var indented bytes.Buffer
	if err := json.Indent(&indented, []byte(refused.body), "", "  "); err != nil {
		t.Fatal(err)
	}

	blocks := docsBlocks(t)
	for _, c := range []struct {
		language string
		want     []string
	}{
		{"http", []string{shown(t, admitted), shown(t, refused), shown(t, busy), shown(t, trio), shown(t, byRules)}},
		{"json", []string{indented.String()}},
	} {
		if got := blocks[c.language]; !slices.Equal(got, c.want) {
			t.Errorf("docs/http.md shows\n%s\nbut the answers are\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
	if !slices.Contains(blocks["text"], text.body) {
		t.Errorf("docs/http.md does not show the text %s", text.body)
	}
	if !slices.Contains(blocks["text"], mistake.Error()+"\n") {
		t.Errorf("docs/http.md does not show the error %v", mistake)
	}
}

// TestDocsShowCodeThatRuns looks for the lines of each Go block of docs/http.md in the examples.
func TestDocsShowCodeThatRuns(t *testing.T) {
	var all strings.Builder
	for _, name := range []string{"example_test.go", "../httpclient/example_test.go", "../ratelimitfields/example_test.go"} {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(source)
	}
	code := unindented(all.String())
	blocks := docsBlocks(t)["go"]
	if len(blocks) == 0 {
		t.Fatal("docs/http.md shows no Go")
	}
	for _, block := range blocks {
		if !strings.Contains(code, unindented(block)) {
			t.Errorf("no example has the lines\n%s", block)
		}
	}
}

// docsBlocks are the code blocks of docs/http.md by language.
func docsBlocks(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string][]string{}
	parts := strings.Split(string(text), "\n```")
	for i := 1; i < len(parts); i += 2 {
		language, block, _ := strings.Cut(parts[i], "\n")
		blocks[language] = append(blocks[language], block+"\n")
	}
	return blocks
}

func unindented(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}
