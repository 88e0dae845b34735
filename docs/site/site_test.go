package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// element is one of a page: its name, and its attributes.
type element struct {
	name string
	has  map[string]string
}

// elements reads a page again, by a reader that knows nothing of how it was made.
func elements(t *testing.T, name string, content []byte) []element {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(content))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	var all []element
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tag, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		e := element{name: tag.Name.Local, has: map[string]string{}}
		for _, a := range tag.Attr {
			e.has[a.Name.Local] = a.Value
		}
		all = append(all, e)
	}
}

// built is a site: the elements of its pages, and the content of its other files.
type built struct {
	pages map[string][]element
	files map[string][]byte
}

func build(t *testing.T, root string) built {
	t.Helper()
	dir := t.TempDir()
	if err := run(io.Discard, []string{"-root", root, dir}); err != nil {
		t.Fatal(err)
	}
	b := built{pages: map[string][]element{}, files: map[string][]byte{}}
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(file, dir+string(filepath.Separator)))
		if path.Ext(name) == ".html" {
			b.pages[name] = elements(t, name, content)
		} else {
			b.files[name] = content
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ids are the anchors of a page.
func (b built) ids(t *testing.T, name string) map[string]bool {
	t.Helper()
	ids := map[string]bool{}
	for _, e := range b.pages[name] {
		id, ok := e.has["id"]
		if ok && ids[id] {
			t.Errorf("%s has two elements with the id %s", name, id)
		}
		ids[id] = ok
	}
	return ids
}

// TestSite makes the site of this repository, and follows each address in it.
func TestSite(t *testing.T) {
	b := build(t, "../..")
	anchors := map[string]map[string]bool{}
	for name := range b.pages {
		anchors[name] = b.ids(t, name)
	}
	links := 0
	for name, page := range b.pages {
		viewport := false
		for _, e := range page {
			viewport = viewport || e.name == "meta" && e.has["name"] == "viewport" && strings.Contains(e.has["content"], "width=device-width")
			for _, attribute := range []string{"href", "src", "srcset", "data-sections", "action", "poster"} {
				target, ok := e.has[attribute]
				if !ok {
					continue
				}
				links++
				if e.name == "a" && strings.HasPrefix(target, "http") {
					continue // nothing is loaded from there
				}
				if why := b.dead(anchors, name, target); why != "" {
					t.Errorf("%s: <%s %s=%q>: %s", name, e.name, attribute, target, why)
				}
			}
			if e.name == "style" || e.has["style"] != "" {
				t.Errorf("%s: <%s> has a style of its own, which is not looked through here", name, e.name)
			}
		}
		if !viewport {
			t.Errorf("%s: a telephone shows it in the width of a desk", name)
		}
	}
	if len(b.pages) < 60 || links < 3000 {
		t.Errorf("only %d pages with %d links were looked through", len(b.pages), links)
	}
	for _, bad := range []string{"url(", "@import", "http:", "https:"} {
		if bytes.Contains(b.files["style.css"], []byte(bad)) || bytes.Contains(b.files["search.js"], []byte(bad)) {
			t.Errorf("the style or the search has %s", bad)
		}
	}
}

// dead says why an address leads nowhere on the site.
func (b built) dead(anchors map[string]map[string]bool, from, target string) string {
	address, err := url.Parse(target)
	switch {
	case err != nil:
		return err.Error()
	case address.Scheme != "" || address.Host != "":
		return "it is on another host"
	case path.IsAbs(address.Path):
		return "it is no relative address"
	}
	to := from
	if address.Path != "" {
		to = path.Join(path.Dir(from), address.Path)
	}
	if b.pages[to] == nil && b.files[to] == nil {
		return "there is no " + to
	}
	if address.Fragment != "" && !anchors[to][address.Fragment] {
		return to + " has no such anchor"
	}
	return ""
}

// TestEveryPageIsReached: each file under docs has a page, and the navigation of the index or of a page in its directory leads there. The
// search finds each.
func TestEveryPageIsReached(t *testing.T) {
	b := build(t, "../..")
	found := strings.TrimSuffix(strings.TrimPrefix(string(b.files["sections.js"]), "var sections = "), ";\n")
	var sections []section
	if err := json.Unmarshal([]byte(found), &sections); err != nil {
		t.Fatal(err)
	}
	reached := map[string]bool{}
	for name, page := range b.pages {
		inside := false
		for _, e := range page {
			if inside = inside && e.name != "main" || e.name == "nav"; inside && e.name == "a" {
				reached[path.Join(path.Dir(name), e.has["href"])] = true
			}
		}
	}
	count := 0
	err := filepath.WalkDir("..", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(file) != markdown {
			return err
		}
		count++
		name := (&page{name: path.Join("docs/site", filepath.ToSlash(file))}).address()
		if b.pages[name] == nil || !reached[name] {
			t.Errorf("%s: there is no %s, or no navigation leads there", file, name)
		}
		if !slices.ContainsFunc(sections, func(s section) bool { return strings.HasPrefix(s.Address, name) && s.Text != "" }) {
			t.Errorf("%s: the search does not find it", file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if count < 50 {
		t.Errorf("only %d pages are under docs", count)
	}
}

// small is a repository with one of everything.
func small() fstest.MapFS {
	return fstest.MapFS{
		"README.md":      {Data: []byte("# Small\n\nSee [all](docs/README.md), ![picture](docs/a%20b.svg) and [the code](code/).\n")},
		"docs/README.md": {Data: []byte("# Documents\n\n## Begin\n\n- [A page](a.md)\n")},
		"docs/a.md": {Data: []byte("# A `page`\n\nWith <img src=\"a b.svg\" alt=\"\">.\n\n## The [same](#the-same)\n\n## The same\n\n" +
			"[back](../README.md) [second](#the-same-1) [far](../code/far.md#there)\n\n| wide |\n|---|\n| `x` |\n")},
		"docs/a b.svg": {Data: []byte("<svg/>")},
		"code/far.md":  {Data: []byte("# Far\n\n```go\nx := \"<y>\"\n```\n\n### There!\n")},
	}
}

// TestSmall: links lead from page to page, pictures are copied, and other files are where they are.
func TestSmall(t *testing.T) {
	s, err := read(small())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := s.write(dir); err != nil {
		t.Fatal(err)
	}
	for name, parts := range map[string][]string{
		"index.html": {
			`<a href="docs/index.html">all</a>`, `<img src="docs/a%20b.svg" alt="picture">`, `<a href="` + source + `/tree/main/code">the code</a>`,
			`<title>Small</title>`,
		},
		"docs/a.html": {
			`<title>A page · weir</title>`, `<img src="../docs/a%20b.svg" alt="">`, `<h2 id="the-same">`, `<h2 id="the-same-1">`,
			`<a href="../index.html">back</a>`, `<a href="#the-same-1">second</a>`, `<a href="../code/far.html#there">far</a>`,
			`<div class="wide" tabindex="0"><table>`, `<th scope="col">wide</th>`, `<a href="../docs/a.html" aria-current="page">A page</a>`,
		},
		"code/far.html":   {`<span class="s">&#34;&lt;y&gt;&#34;</span>`, `<h3 id="there">`},
		"docs/a b.svg":    {"<svg/>"},
		"docs/index.html": {`<link rel="stylesheet" href="../style.css">`},
	} {
		content, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, part := range parts {
			if !bytes.Contains(content, []byte(part)) {
				t.Errorf("%s has no %s:\n%s", name, part, content)
			}
		}
	}
}

// TestDeadLinksAreErrors: no site is made of pages with a link that leads nowhere.
func TestDeadLinksAreErrors(t *testing.T) {
	for link, want := range map[string]string{
		"[x](gone.md)":            "gone.md",
		"[x](gone.go)":            "docs/b.md links to gone.go",
		"[x](a.md#gone)":          "docs/b.md links to a.md#gone: docs/a.md has no heading for #gone",
		"[x](#gone)":              "docs/b.md has no heading for #gone",
		"![x](gone.svg)":          "docs/b.md links to gone.svg",
		`<img src="gone.svg">`:    "docs/b.md links to gone.svg",
		"[x](../../outside.md)":   "../outside.md",
		"[x](a.md#the-same-2)":    "no heading for #the-same-2",
		`<a href="a.md#b">x</a>`:  "no heading for #b",
		"[x][y]\n\n[y]: a.md#why": "no heading for #why",
	} {
		repository := small()
		repository["docs/b.md"] = &fstest.MapFile{Data: []byte("# B\n\n" + link + "\n")}
		if _, err := read(repository); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, and does not say %q", link, err, want)
		}
	}
}

func TestCommandLine(t *testing.T) {
	for _, args := range [][]string{nil, {"a", "b"}, {"-what", "a"}} {
		if err := run(io.Discard, args); !errors.Is(err, errUsage) {
			t.Errorf("%q: the error is %v", args, err)
		}
	}
}
