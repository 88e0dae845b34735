package browser_test

import (
	"context"
	_ "embed" // of the checks
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// patience is how long a page may take for what a test waits for. A machine that does nothing else needs a fraction of a second.
var patience = 2 * time.Minute

var closeBrowser = func() {}

// startBrowser starts the one browser of all tests. It has an empty profile, and connects to the servers of the tests only.
var startBrowser = sync.OnceValues(func() (context.Context, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, fmt.Errorf("chromium is not installed (make deps installs it on Debian): %w", err)
	}
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), chromedp.ExecPath(path),
		chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("force-color-profile", "srgb"))
	ctx, stop := chromedp.NewContext(allocator)
	closeBrowser = func() {
		stop()
		cancel()
	}
	return ctx, chromedp.Do(ctx)
})

// tab is a page of the dashboard, as an operator has it open.
type tab struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // chromedp keeps its tab in one

	mu      sync.Mutex
	said    []string // what the page has told the console
	allowed []string // parts of what it may
}

// open opens the dashboard of a server in a window of some width, with the colours that a system prefers, until the end of the test.
// Whatever the page tells the console then fails the test, a violation of its security policy for instance.
func open(t *testing.T, address string, width int64, scheme string) *tab {
	t.Helper()
	return openPage(t, "http://"+address+"/ui/", width, scheme)
}

// openPage opens any page likewise.
func openPage(t *testing.T, address string, width int64, scheme string) *tab {
	t.Helper()
	browser, err := startBrowser()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(browser)
	p := &tab{t: t, ctx: ctx}
	// The tab lives as long as the context of what is done first in it.
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, 900)); err != nil {
		t.Fatal(err)
	}
	said := chromedp.Console(ctx)
	var listening sync.WaitGroup
	listening.Go(func() {
		for message, err := range said {
			if err != nil {
				return
			}
			p.mu.Lock()
			p.said = append(p.said, message.String())
			p.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		cancel()
		listening.Wait()
		for _, one := range p.said {
			if !p.may(one) {
				t.Errorf("the page told the console: %s", one)
			}
		}
	})
	p.prefer(scheme)
	p.do(chromedp.Navigate(address))
	return p
}

// allow lets the page tell the console what has a part in it.
func (p *tab) allow(part string) { p.allowed = append(p.allowed, part) }

func (p *tab) may(said string) bool {
	for _, part := range p.allowed {
		if strings.Contains(said, part) {
			return true
		}
	}
	return false
}

// prefer says which colours the system prefers: light or dark.
func (p *tab) prefer(scheme string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// do runs steps in the browser.
func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatalf("%v; the page shows\n%s", err, p.shown())
	}
}

// eval is the value of an expression of JavaScript.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// shown is the text of the page.
func (p *tab) shown() string {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body?.innerText ?? ""`))
	if err != nil {
		return err.Error()
	}
	return text
}

// until waits until an expression of JavaScript is true.
func (p *tab) until(expression string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience+time.Second)
	defer cancel()
	var last error
	for deadline := time.Now().Add(patience); ; {
		holds, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`Boolean(`+expression+`)`))
		if holds {
			return
		}
		last = err
		if time.Now().After(deadline) {
			p.t.Fatalf("never came true: %s (%v); the page shows\n%s", expression, last, p.shown())
		}
		pause := time.NewTimer(20 * time.Millisecond)
		select {
		case <-pause.C:
		case <-p.ctx.Done():
			p.t.Fatal(p.ctx.Err())
		}
	}
}

// untilShows waits until an element has a text in it.
func (p *tab) untilShows(selector, text string) {
	p.t.Helper()
	p.until(fmt.Sprintf(`[...document.querySelectorAll(%s)].some((e) => e.innerText.includes(%s))`, quote(selector), quote(text)))
}

// live waits until the page hears the server.
func (p *tab) live() {
	p.t.Helper()
	p.until(`document.getElementById("live")?.dataset.state === "live"`)
}

// visit goes to an address of the page, and waits for its heading.
func (p *tab) visit(hash, heading string) {
	p.t.Helper()
	eval[any](p, `location.hash = `+quote(hash)+`, null`)
	p.until(`document.querySelector("h1")?.textContent === ` + quote(heading))
}

// click clicks the first element that a selector finds.
func (p *tab) click(selector string) {
	p.t.Helper()
	p.clickOn(`document.querySelector(` + quote(selector) + `)`)
}

// press clicks the first button or link with this text that can be seen and used.
func (p *tab) press(text string) {
	p.t.Helper()
	p.clickOn(`[...document.querySelectorAll("dialog[open] :is(button, a, label), body:not(:has(dialog[open])) :is(button, a, summary)")]` +
		`.find((e) => e.innerText.trim() === ` + quote(text) + ` && e.checkVisibility() && !e.disabled)`)
}

// clickOn clicks an element once it is there, can be seen, and nothing lies over it. All that is one step, as the page moves what it
// has whenever it hears of something: a mouse that goes to where a button was misses it.
func (p *tab) clickOn(element string) {
	p.t.Helper()
	p.until(`((e) => {
		if (!e?.checkVisibility()) {
			return false;
		}
		e.scrollIntoView({ behavior: "instant", block: "center", inline: "center" });
		const at = e.getClientRects()[0];
		const seen = at && document.elementFromPoint(at.x + at.width / 2, at.y + at.height / 2);
		if (!seen || !e.contains(seen)) {
			return false;
		}
		e.focus();
		e.click();
		return true;
	})(` + element + `)`)
}

// still stops the clock by which the page tells letters that belong together from others, on a machine that may stand still as well.
func (p *tab) still() {
	p.t.Helper()
	eval[any](p, `(() => { const now = Date.now(); Date.now = () => now; })(), null`)
}

// keys presses keys, one after the other.
func (p *tab) keys(keys string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys))
}

// enter puts text into the field with a label.
func (p *tab) enter(label, text string) {
	p.t.Helper()
	find := `[...document.querySelectorAll("dialog[open] label, body:not(:has(dialog[open])) label")]` +
		`.find((l) => l.textContent === ` + quote(label) + `)?.control`
	p.until(find)
	eval[any](p, `(() => { const field = `+find+`; field.focus(); field.select?.(); })(), null`)
	p.do(chromedp.KeyEvent(text))
	p.until(find + `.value === ` + quote(text))
}

// choose chooses an option of the list with a label.
func (p *tab) choose(label, value string) {
	p.t.Helper()
	find := `[...document.querySelectorAll("label")].find((l) => l.textContent === ` + quote(label) + `)?.control`
	p.until(find + ` && [...` + find + `.options].some((o) => o.value === ` + quote(value) + `)`)
	eval[any](p, `(() => { const list = `+find+`; list.value = `+quote(value)+`; list.dispatchEvent(new Event("change")); })(), null`)
}

// quote is text as a string of JavaScript.
func quote(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string has a form
	}
	return string(quoted)
}

//go:embed testdata/accessible.js
var accessible string

// check looks for what shuts people out.
func (p *tab) check(what string) {
	p.t.Helper()
	p.until(`document.getAnimations().length === 0`)
	for _, wrong := range eval[[]string](p, accessible) {
		p.t.Errorf("%s: %s", what, wrong)
	}
}
