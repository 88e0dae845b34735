package adminapi_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

// TestPageOfDocs: the page names every address of the API and no other, its requests are those of the API, and are answered.
func TestPageOfDocs(t *testing.T) {
	text, err := os.ReadFile("../../../../../docs/admin-api.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	known := document(t)
	told := map[string]bool{}
	for _, path := range regexp.MustCompile(`/v1/admin/[a-z]+`).FindAllString(page, -1) {
		if known[path] == nil {
			t.Errorf("the page has %s, which is not there", path)
		}
		told[path] = true
	}
	for path := range known {
		if strings.HasPrefix(path, "/v1/admin/") && !told[path] {
			t.Errorf("the page does not have %s", path)
		}
	}
	s := newServer(t, configured)
	s.login(4, "192.0.2.1")
	blocks := strings.Split(page, "```http\n")[1:]
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		line, body, _ := strings.Cut(block, "\n\n")
		method, path, _ := strings.Cut(line, " ")
		var changed operator.Changed
		s.ask(method, path, strings.TrimSpace(body), 200, &changed)
		if !changed.Changed && path != operator.ReloadPath {
			t.Errorf("%s has changed nothing", path)
		}
	}
	if len(blocks) != 5 {
		t.Errorf("%d requests", len(blocks))
	}
}
