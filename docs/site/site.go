package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// source is where files of the repository that are no pages can be read.
const source = "https://github.com/weirhq/weir"

// site is all that is written.
type site struct {
	root  fs.FS
	pages map[string]*page // by the names of their files
	order []*page          // as they are read from the first to the last
	parts []part
	files map[string]bool // pictures
}

// part is one of the index of the documentation, with the pages that it lists.
type part struct {
	Title string
	Pages []*page
}

// read reads README.md, every page under docs, and every page that is linked from one of them.
func read(root fs.FS) (*site, error) {
	s := &site{root: root, pages: map[string]*page{}, files: map[string]bool{}}
	names := []string{start}
	err := fs.WalkDir(root, "docs", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && path.Ext(name) == markdown {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for pages: %w", err)
	}
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		if s.pages[name] != nil {
			continue
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return nil, fmt.Errorf("read a page: %w", err)
		}
		p := parse(name, text)
		s.pages[name] = p
		for _, link := range p.links {
			if to, _, ok := link.within(name); ok && path.Ext(to) == markdown {
				names = append(names, to)
			}
		}
	}
	if err := s.resolve(); err != nil {
		return nil, err
	}
	if err := s.arrange(); err != nil {
		return nil, err
	}
	return s, nil
}

// resolve gives each link the address that it has on the site.
func (s *site) resolve() error {
	var wrong []error
	for _, name := range sorted(s.pages) {
		p := s.pages[name]
		for _, link := range p.links {
			if err := s.resolveLink(p, link); err != nil {
				wrong = append(wrong, fmt.Errorf("%s links to %s: %w", name, link.target(), err))
			}
		}
	}
	return errors.Join(wrong...)
}

func (s *site) resolveLink(p *page, link *link) error {
	to, fragment, ok := link.within(p.name)
	if !ok {
		return nil
	}
	if page := s.pages[to]; page != nil {
		if fragment != "" && !page.anchors[fragment] {
			return fmt.Errorf("%s has no heading for #%s", to, fragment)
		}
		address := url.URL{Path: p.relative(page.address()), Fragment: fragment}
		if page == p && fragment != "" {
			address.Path = ""
		}
		link.set(address.String())
		return nil
	}
	info, err := fs.Stat(s.root, to)
	switch {
	case err != nil:
		return fmt.Errorf("look for it: %w", err)
	case link.picture():
		s.files[to] = true
		link.set((&url.URL{Path: p.relative(to)}).String())
	case info.IsDir():
		link.set(source + "/tree/main/" + to)
	default:
		link.set(source + "/blob/main/" + to)
	}
	return nil
}

// arrange takes the order of the pages from the index of the documentation. One that is not there follows the page that its
// directory belongs to.
func (s *site) arrange() error {
	index := s.pages[contents]
	if index == nil {
		return fmt.Errorf("%s is missing: it has the order of the pages", contents)
	}
	s.parts = index.outline(s.pages)
	listed := map[*page]bool{}
	add := func(p *page) {
		if p != nil && !listed[p] {
			listed[p] = true
			s.order = append(s.order, p)
		}
	}
	add(s.pages[start])
	add(index)
	for _, part := range s.parts {
		for _, p := range part.Pages {
			add(p)
			for _, name := range sorted(s.pages) {
				if below := s.pages[name]; path.Dir(name) == p.directory() && below != p {
					below.under = p
					p.Below = append(p.Below, below)
					add(below)
				}
			}
		}
	}
	for _, name := range sorted(s.pages) {
		add(s.pages[name])
	}
	return nil
}

//go:embed page.html style.css search.js
var assets embed.FS

var layout = template.Must(template.ParseFS(assets, "page.html"))

// view is what the layout shows of a page.
type view struct {
	*page

	Site           *site
	Body           template.HTML
	Source         string
	Previous, Next *page
}

// To is the address of a page as seen from the one that is shown.
func (v view) To(p *page) string { return v.relative(p.address()) }

// Asset is the address of a file in the root of the site.
func (v view) Asset(name string) string { return v.relative(name) }

// Parts are those of the navigation.
func (v view) Parts() []part { return v.Site.parts }

// Open reports whether the pages below p are listed.
func (v view) Open(p *page) bool { return v.page == p || v.under == p }

// Here reports whether p is the page that is shown.
func (v view) Here(p *page) bool { return v.page == p }

// Home and Index are the first page, and that with all others.
func (v view) Home() *page { return v.Site.pages[start] }

// Index is the page with all others.
func (v view) Index() *page { return v.Site.pages[contents] }

// write writes all files into a directory.
func (s *site) write(to string) error {
	for i, p := range s.order {
		body, err := p.render()
		if err != nil {
			return err
		}
		v := view{
			page: p, Site: s, Source: source + "/blob/main/" + p.name,
			Body: template.HTML(body), //nolint:gosec // the pages are those of the repository
		}
		if i > 0 {
			v.Previous = s.order[i-1]
		}
		if i+1 < len(s.order) {
			v.Next = s.order[i+1]
		}
		var b bytes.Buffer
		if err := layout.Execute(&b, v); err != nil {
			return fmt.Errorf("lay %s out: %w", p.name, err)
		}
		if err := put(to, p.address(), b.Bytes()); err != nil {
			return err
		}
	}
	for _, name := range sorted(s.files) {
		picture, err := fs.ReadFile(s.root, name)
		if err != nil {
			return fmt.Errorf("read a picture: %w", err)
		}
		if err := put(to, name, picture); err != nil {
			return err
		}
	}
	return s.writeAssets(to)
}

// writeAssets writes the style, the search and what it looks through.
func (s *site) writeAssets(to string) error {
	style, err := assets.ReadFile("style.css")
	if err != nil {
		return fmt.Errorf("read the style: %w", err)
	}
	colours, err := highlighting()
	if err != nil {
		return err
	}
	search, err := assets.ReadFile("search.js")
	if err != nil {
		return fmt.Errorf("read the search: %w", err)
	}
	var sections []section
	for _, p := range s.order {
		sections = append(sections, p.sections...)
	}
	index, err := json.Marshal(sections)
	if err != nil {
		return fmt.Errorf("write the index: %w", err)
	}
	return errors.Join(
		put(to, "style.css", append(style, colours...)),
		put(to, "search.js", search),
		// A script, and not JSON that is fetched: pages that are opened as files may fetch nothing.
		put(to, "sections.js", slices.Concat([]byte("var sections = "), index, []byte(";\n"))),
	)
}

// put writes a file of the site.
func put(to, name string, content []byte) error {
	file := filepath.Join(to, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // a site is for all
		return fmt.Errorf("make a directory: %w", err)
	}
	if err := os.WriteFile(file, content, 0o644); err != nil { //nolint:gosec // the same
		return fmt.Errorf("write a file: %w", err)
	}
	return nil
}

// sorted returns the names in a map in their order.
func sorted[T any](of map[string]T) []string {
	names := make([]string, 0, len(of))
	for name := range of {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// address is where the site has a page: README.md is the index of its directory.
func (p *page) address() string {
	if path.Base(p.name) == start {
		return path.Join(path.Dir(p.name), "index.html")
	}
	return strings.TrimSuffix(p.name, markdown) + ".html"
}

// directory has the pages that belong to this one: those beside it, if it is the index of a directory under docs, or else those
// in the directory of its name.
func (p *page) directory() string {
	if path.Base(p.name) == start && strings.HasPrefix(p.name, "docs/") && p.name != contents {
		return path.Dir(p.name)
	}
	return strings.TrimSuffix(p.name, markdown)
}

// relative is the address of a file of the site as seen from the page.
func (p *page) relative(to string) string {
	return strings.Repeat("../", strings.Count(p.address(), "/")) + to
}
