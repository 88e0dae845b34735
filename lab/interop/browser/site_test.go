package browser_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/weirhq/weir/internal/programtest"
)

var siteProgram = programtest.Program{Name: "site", Dir: "../../../docs/site"}

// TestSite looks at the documentation on a telephone, in both colours, and searches it. It is opened as files, without a server.
func TestSite(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), siteProgram.Path(t), "-root", "../../..", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p := openPage(t, "file://"+filepath.ToSlash(dir)+"/index.html", 390, "light")
	for _, page := range []string{ // those with the widest tables and lines, and the most kinds of code
		"docs/configuration", "docs/metrics", "docs/guarantees", "docs/migrating", "docs/http", "docs/front", "docs/resp",
		"docs/benchmarks/raw", "docs/reference/weir-serve", "index",
	} {
		p.do(chromedp.Navigate("file://" + filepath.ToSlash(dir) + "/" + page + ".html"))
		for _, scheme := range []string{"light", "dark"} {
			p.prefer(scheme)
			for _, wrong := range eval[[]string](p, accessible) {
				// Tables of Markdown have no caption, and some no text above their first column.
				if !strings.Contains(wrong, "has no caption") && !strings.Contains(wrong, "a heading without scope or text") {
					t.Errorf("%s, %s: %s", page, scheme, wrong)
				}
			}
		}
		if w := eval[[]int](p, `[document.documentElement.scrollWidth, document.documentElement.clientWidth]`); w[0] != w[1] {
			t.Errorf("%s is %d pixels wide, and the telephone %d", page, w[0], w[1])
		}
	}
	ground := `getComputedStyle(document.body).backgroundColor`
	dark := eval[string](p, ground)
	p.prefer("light")
	p.until(ground + ` !== ` + quote(dark))

	p.press("Contents")
	p.until(`document.querySelector("nav a[href='docs/migrating.html']").checkVisibility()`)
	p.keys("\x1b")
	p.until(`!document.querySelector("nav a").checkVisibility()`)

	p.keys("/")
	p.until(`document.activeElement.type === "search"`)
	eval[any](p, `document.activeElement.value = "", null`) // the protocol types the character even if the page keeps it from that
	p.keys("redis_rate")
	p.untilShows("#found li", "From redis_rate")
	p.press("Moving to weir: From redis_rate")
	p.until(`location.pathname.endsWith("/docs/migrating.html") && location.hash === "#from-redis_rate"`)
}
