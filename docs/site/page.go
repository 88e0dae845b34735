package main

import (
	"bytes"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/alecthomas/chroma/v2/styles"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/renderer"
	goldhtml "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

const (
	start    = "README.md"
	contents = "docs/README.md"
	markdown = ".md"
)

// page is a file of Markdown.
type page struct {
	Title, Summary string
	Below          []*page // those that it is the index of

	name     string // of the file
	text     []byte
	tree     ast.Node
	links    []*link
	anchors  map[string]bool
	sections []section
	under    *page // the one that has it in Below
}

// section is what the search finds.
type section struct {
	Page    string `json:"page"`
	Address string `json:"address"`
	Heading string `json:"heading"`
	Text    string `json:"text"`
}

// link is one in Markdown, or an attribute of HTML in it.
type link struct {
	node ast.Node
	page *page
	html string // the target in a piece of HTML
}

// dialect is that of GitHub: tables, and links where an address stands.
var dialect = goldmark.New(
	goldmark.WithExtensions(
		extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)),
		extension.Linkify, extension.Strikethrough,
	),
	goldmark.WithRendererOptions(goldhtml.WithUnsafe(), renderer.WithNodeRenderers(util.Prioritized(blocks{}, 100))),
)

// parse reads a page.
func parse(name string, content []byte) *page {
	p := &page{name: name, text: content, anchors: map[string]bool{}}
	p.tree = dialect.Parser().Parse(text.NewReader(content))
	_ = ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			p.heading(n)
		case *extast.TableHeader:
			for cell := n.FirstChild(); cell != nil; cell = cell.NextSibling() {
				cell.SetAttributeString("scope", []byte("col"))
			}
		case *ast.Link, *ast.Image:
			p.links = append(p.links, &link{node: n, page: p})
		case *ast.RawHTML, *ast.HTMLBlock:
			for _, found := range attribute.FindAllSubmatch(p.raw(n), -1) {
				p.links = append(p.links, &link{node: n, page: p, html: string(found[1])})
			}
		case *ast.Paragraph:
			if p.Summary == "" && n.Parent() == p.tree && n.FirstChild().Kind() != ast.KindImage {
				p.Summary = p.plain(n)
			}
		}
		if n.Type() == ast.TypeBlock && (n.Kind() == extast.KindTableCell || n.Lines().Len() > 0) && n.Kind() != ast.KindHeading {
			p.found(n)
		}
		return ast.WalkContinue, nil
	})
	return p
}

// heading gives a heading the anchor that GitHub gives it, and begins a section.
func (p *page) heading(h *ast.Heading) {
	words := p.plain(h)
	anchor := slug(words)
	for i := 1; p.anchors[anchor]; i++ {
		anchor = slug(words) + "-" + strconv.Itoa(i)
	}
	p.anchors[anchor] = true
	h.SetAttributeString("id", []byte(anchor))
	address := p.address()
	if p.Title == "" {
		p.Title = words
	} else {
		address += "#" + anchor
	}
	p.sections = append(p.sections, section{Page: p.Title, Address: address, Heading: words})
}

// found adds the text of a block to the section that it is in.
func (p *page) found(n ast.Node) {
	if len(p.sections) == 0 {
		return
	}
	last := &p.sections[len(p.sections)-1]
	last.Text = strings.TrimSpace(last.Text + " " + strings.Join(strings.Fields(p.plain(n)), " "))
}

// slug has letters, digits, hyphens and underscores of a text in lower case, with a hyphen for each space.
func slug(words string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		default:
			return -1
		}
	}, words)
}

// plain is the text in a node.
func (p *page) plain(n ast.Node) string {
	var b strings.Builder
	if n.IsRaw() {
		b.Write(n.Lines().Value(p.text))
	}
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			b.Write(n.Segment.Value(p.text))
			if n.SoftLineBreak() || n.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(n.Value)
		case *ast.AutoLink:
			b.Write(n.Label(p.text))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// attribute finds the targets of HTML in Markdown.
var attribute = regexp.MustCompile(`(?:src|href)="([^"]+)"`)

// raw is the HTML of a node.
func (p *page) raw(n ast.Node) []byte {
	if inline, ok := n.(*ast.RawHTML); ok {
		return inline.Segments.Value(p.text)
	}
	return n.Lines().Value(p.text)
}

// target is what a link leads to.
func (l *link) target() string {
	switch n := l.node.(type) {
	case *ast.Link:
		return string(n.Destination)
	case *ast.Image:
		return string(n.Destination)
	default:
		return l.html
	}
}

// set changes what a link leads to.
func (l *link) set(target string) {
	switch n := l.node.(type) {
	case *ast.Link:
		n.Destination = []byte(target)
	case *ast.Image:
		n.Destination = []byte(target)
	default:
		l.page.replace(n, l.html, target)
	}
}

// replace puts an address into HTML in Markdown, which becomes text of its own.
func (p *page) replace(n ast.Node, from, to string) {
	at := len(p.text)
	p.text = append(p.text, bytes.ReplaceAll(p.raw(n), []byte(`"`+from+`"`), []byte(`"`+to+`"`))...)
	changed := text.NewSegments()
	changed.Append(text.NewSegment(at, len(p.text)))
	if inline, ok := n.(*ast.RawHTML); ok {
		inline.Segments = changed
		return
	}
	n.SetLines(changed)
}

// picture reports whether a link shows its target in the page.
func (l *link) picture() bool {
	_, ok := l.node.(*ast.Image)
	return ok || l.html != "" && bytes.Contains(l.page.raw(l.node), []byte(`src="`+l.html+`"`))
}

// within returns the file of the repository that a link leads to, and the fragment. It reports whether there is one: the link may
// lead elsewhere.
func (l *link) within(name string) (file, fragment string, ok bool) {
	target, err := url.Parse(l.target())
	if err != nil || target.Scheme != "" || target.Host != "" {
		return "", "", false
	}
	if target.Path == "" {
		return name, target.Fragment, true
	}
	return path.Join(path.Dir(name), target.Path), target.Fragment, true
}

// outline are the headings of the second level of an index, with the pages that are linked below them, each where it comes first.
func (p *page) outline(pages map[string]*page) (parts []part) {
	listed := map[*page]bool{p: true}
	_ = ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level == 2 {
				parts = append(parts, part{Title: p.plain(n)})
			}
		case *ast.Link:
			target, ok := p.listed(pages, n)
			if ok && len(parts) > 0 && !listed[target] {
				listed[target] = true
				last := &parts[len(parts)-1]
				last.Pages = append(last.Pages, target)
			}
		}
		return ast.WalkContinue, nil
	})
	return parts
}

// listed is the page that a link of an index leads to.
func (p *page) listed(pages map[string]*page, n *ast.Link) (target *page, ok bool) {
	for _, target := range pages {
		if p.relative(target.address()) == string(n.Destination) {
			return target, true
		}
	}
	return nil, false
}

// render is the page in HTML.
func (p *page) render() ([]byte, error) {
	var b bytes.Buffer
	if err := dialect.Renderer().Render(&b, p.text, p.tree); err != nil {
		return nil, fmt.Errorf("render %s: %w", p.name, err)
	}
	return b.Bytes(), nil
}

// blocks renders what is wider than a telephone into boxes that scroll by themselves, and headings with a link to themselves.
type blocks struct{}

// RegisterFuncs is called by goldmark.
func (blocks) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindFencedCodeBlock, code)
	r.Register(ast.KindCodeBlock, code)
	r.Register(extast.KindTable, table)
	r.Register(ast.KindHeading, heading)
}

func table(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = w.WriteString(`<div class="wide" tabindex="0"><table>` + "\n")
		return ast.WalkContinue, nil
	}
	_, _ = w.WriteString("</table></div>\n")
	return ast.WalkContinue, nil
}

func heading(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	h, _ := n.(*ast.Heading)
	id, _ := h.AttributeString("id")
	if entering {
		fmt.Fprintf(w, "<h%d id=\"%s\">", h.Level, id)
		return ast.WalkContinue, nil
	}
	fmt.Fprintf(w, " <a class=\"self\" href=\"#%s\" aria-label=\"Link to this heading\">#</a></h%d>\n", id, h.Level)
	return ast.WalkContinue, nil
}

var formatter = html.New(html.WithClasses(true), html.PreventSurroundingPre(true))

func code(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	language := ""
	if fenced, ok := n.(*ast.FencedCodeBlock); ok {
		language = string(fenced.Language(source))
	}
	lexer := lexers.Get(language)
	if lexer == nil {
		lexer = lexers.Fallback
	}
	tokens, err := chroma.Coalesce(lexer).Tokenise(nil, string(n.Lines().Value(source)))
	if err != nil {
		return ast.WalkStop, fmt.Errorf("colour a block of %q: %w", language, err)
	}
	_, _ = w.WriteString(`<pre class="chroma" tabindex="0"><code>`)
	if err := formatter.Format(w, styles.Fallback, tokens); err != nil {
		return ast.WalkStop, fmt.Errorf("colour a block of %q: %w", language, err)
	}
	_, _ = w.WriteString("</code></pre>\n")
	return ast.WalkSkipChildren, nil
}

// highlighting is the style of code in light and in dark.
func highlighting() ([]byte, error) {
	var b bytes.Buffer
	for _, in := range []struct{ scheme, style string }{{"light", "github"}, {"dark", "github-dark"}} {
		fmt.Fprintf(&b, "@media (prefers-color-scheme: %s) {\n", in.scheme) // each alone: neither has all colours of the other
		if err := formatter.WriteCSS(&b, styles.Get(in.style)); err != nil {
			return nil, fmt.Errorf("write the colours: %w", err)
		}
		b.WriteString("}\n")
	}
	return b.Bytes(), nil
}
