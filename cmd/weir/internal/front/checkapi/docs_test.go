package checkapi_test

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

var update = flag.Bool("update", false, "write into docs/check-api.md what the server answers")

// The ids that the page shows, in the order in which the reservations are made.
var shownIDs = []string{"XWCSHAMJHQ4OI5QWE2WDFEGNAB", "YKQ7OTZ2VJBL4MSD6HCEP3WUAR"}

// page sends what a page shows, to a server whose clock stands still.
type page struct {
	server *httptest.Server
	ids    map[string]string // those that are shown, by those that were answered
}

var answeredID = regexp.MustCompile(`"id":"([A-Z0-9]{26})","expires_in"`)

// run does what a command of the page does, which is curl and perhaps jq.
func (p *page) run(t *testing.T, line string) string {
	t.Helper()
	for id, shown := range p.ids {
		line = strings.ReplaceAll(line, shown, id)
	}
	command, filter, filtered := strings.Cut(line, " | jq ")
	text := p.curl(t, command)
	if id := answeredID.FindStringSubmatch(text); id != nil {
		p.ids[id[1]] = shownIDs[len(p.ids)]
	}
	for id, shown := range p.ids {
		text = strings.ReplaceAll(text, id, shown)
	}
	if filtered {
		text = jq(t, filter, text)
	}
	return text
}

func (p *page) curl(t *testing.T, command string) string {
	t.Helper()
	words := splitWords(command)
	method, body, include, address := "", "", false, ""
	for i := 1; i < len(words); i++ {
		switch words[i] {
		case "-s":
		case "-i":
			include = true
		case "-d":
			i++
			method, body = "POST", words[i]
		case "-X":
			i++
			method = words[i]
		default:
			address = words[i]
		}
	}
	path, ok := strings.CutPrefix(address, "http://127.0.0.1:7070")
	if words[0] != "curl" || !ok {
		t.Fatalf("the test does not know how to run %q", command)
	}
	r, err := http.NewRequestWithContext(context.Background(), method, p.server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	response, err := p.server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !include {
		return string(text)
	}
	response.Header.Set("Date", "Sun, 22 Nov 2026 09:30:00 GMT")
	response.Header.Set("Content-Length", strconv.Itoa(len(text)))
	var head strings.Builder
	head.WriteString("HTTP/1.1 " + response.Status + "\n")
	for _, name := range slices.Sorted(maps.Keys(response.Header)) {
		head.WriteString(name + ": " + response.Header.Get(name) + "\n")
	}
	return head.String() + "\n" + string(text)
}

// splitWords splits a command at blanks outside single quotes.
func splitWords(command string) []string {
	var words []string
	for i, part := range strings.Split(command, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

// jq does what jq does with the filters of the page: {a, b} and .a[0].b.
func jq(t *testing.T, filter, text string) string {
	t.Helper()
	filter = strings.Trim(strings.TrimLeft(filter, "-rc "), "'")
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if names, ok := strings.CutPrefix(filter, "{"); ok {
		whole, _ := value.(map[string]any)
		var parts []string
		for name := range strings.SplitSeq(strings.TrimSuffix(names, "}"), ", ") {
			one, err := json.Marshal(whole[name])
			if err != nil || whole[name] == nil {
				t.Fatalf("there is no %s: %v", name, err)
			}
			parts = append(parts, strconv.Quote(name)+":"+string(one))
		}
		return "{" + strings.Join(parts, ",") + "}\n"
	}
	for _, name := range strings.FieldsFunc(filter, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		switch at := value.(type) {
		case map[string]any:
			value = at[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(at) {
				t.Fatalf("%s: there is no %s", filter, name)
			}
			value = at[i]
		}
	}
	answer, ok := value.(string)
	if !ok {
		t.Fatalf("%s is %v", filter, value)
	}
	return answer + "\n"
}

// TestPageOfDocs sends every request of docs/check-api.md, and compares the answers with those that it shows.
func TestPageOfDocs(t *testing.T) {
	const path = "../../../../../docs/check-api.md"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, configuration, found := strings.Cut(string(data), "```yaml\n")
	configuration, _, ends := strings.Cut(configuration, "```")
	if !found || !ends {
		t.Fatal("the page shows no configuration")
	}
	h, _ := newConfigured(t, configuration, policy.EngineOptions{
		Clock:     manualclock.New(0),
		OnRefused: func([]*policy.Request, *policy.Verdict) uint64 { return 0x2abd9473b69d98ae },
	})
	p := &page{server: httptest.NewServer(h), ids: map[string]string{}}
	defer p.server.Close()
	parts := strings.Split(string(data), "```console\n")
	asked := map[string]bool{}
	for i, part := range parts[1:] {
		block, rest, _ := strings.Cut(part, "```")
		var now strings.Builder
		for _, step := range strings.Split("\n"+block, "\n$ ")[1:] {
			line, _, _ := strings.Cut(step, "\n")
			now.WriteString("$ " + line + "\n" + strings.TrimRight(p.run(t, line), "\n") + "\n")
			_, address, _ := strings.Cut(line, "http://127.0.0.1:7070")
			asked[strings.Fields(address)[0]] = true
		}
		if got := now.String(); got != block && !*update {
			t.Errorf("it shows\n%s\nand the server answers\n%s", block, got)
		}
		parts[i+1] = now.String() + "```" + rest
	}
	for _, address := range []string{
		"/v1/check", "/v1/decide", "/v1/batch", "/v1/reserve", "/v1/commit", "/v1/cancel", "/v1/explain", "/v1/status", "/v1/reload",
		"/openapi.json", "/healthz", "/healthcheck", "/readyz",
	} {
		if !asked[address] {
			t.Errorf("the page has no example of %s", address)
		}
	}
	if *update {
		if err := os.WriteFile(path, []byte(strings.Join(parts, "```console\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
