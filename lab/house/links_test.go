//go:build !race

package house_test

import (
	"net/url"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	// inlineLink finds [text](target) and ![text](target "title"), referenceLink [name]: target, htmlLink the
	// attributes of HTML in Markdown.
	inlineLink    = regexp.MustCompile(`\]\(\s*<?([^)\s>]+)>?[^)]*\)`)
	referenceLink = regexp.MustCompile(`^\s{0,3}\[[^\]]+\]:\s+<?(\S+?)>?(?:\s|$)`)
	htmlLink      = regexp.MustCompile(`(?:src|srcset|href)="([^"]+)"`)

	codeSpan   = regexp.MustCompile("`[^`]*`")
	fence      = regexp.MustCompile("^\\s*(```|~~~)")
	atxHeading = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*\s*$`)
	linkText   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// markdown is what a Markdown file links to and can be linked by.
type markdown struct {
	targets []string
	anchors map[string]bool
}

func readMarkdown(t *testing.T, name string) markdown {
	t.Helper()

	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}

	m := markdown{anchors: map[string]bool{}}
	fenced := false

	for line := range strings.Lines(string(text)) {
		if fence.MatchString(line) {
			fenced = !fenced
		}

		if fenced {
			continue
		}

		if h := atxHeading.FindStringSubmatch(strings.TrimRight(line, "\r\n")); h != nil {
			m.anchors[headingAnchor(h[1])] = true
		}

		line = codeSpan.ReplaceAllString(line, "")

		for _, link := range []*regexp.Regexp{inlineLink, referenceLink, htmlLink} {
			for _, found := range link.FindAllStringSubmatch(line, -1) {
				m.targets = append(m.targets, found[1])
			}
		}
	}

	return m
}

// headingAnchor is the fragment that a Markdown renderer gives to a heading: letters, digits, hyphens and underscores in lower
// case, with a hyphen for each space.
func headingAnchor(heading string) string {
	heading = linkText.ReplaceAllString(heading, "$1")

	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		default:
			return -1
		}
	}, heading)
}

// brokenLink says why a link in the file name leads nowhere, or "".
func brokenLink(t *testing.T, name, target string) string {
	t.Helper()

	link, err := url.Parse(target)
	if err != nil {
		return err.Error()
	}

	if link.Scheme != "" || link.Host != "" {
		return ""
	}

	file := name

	if link.Path != "" {
		if strings.HasPrefix(link.Path, "/") {
			return "a path from the root resolves on no clone"
		}

		file = path.Join(path.Dir(name), link.Path)

		if strings.HasPrefix(file, "../") {
			return "it leads out of the repository"
		}

		if _, err := os.Stat(file); err != nil {
			return err.Error()
		}
	}

	if link.Fragment != "" && strings.HasSuffix(file, ".md") && !readMarkdown(t, file).anchors[link.Fragment] {
		return file + " has no heading for #" + link.Fragment
	}

	return ""
}

func TestMarkdownLinksResolve(t *testing.T) {
	count := 0

	repositoryFiles(t, func(name string) {
		if !strings.HasSuffix(name, ".md") {
			return
		}

		for _, target := range readMarkdown(t, name).targets {
			count++

			if why := brokenLink(t, name, target); why != "" {
				t.Errorf("%s links to %s: %s", name, target, why)
			}
		}
	})

	if count == 0 {
		t.Error("found no link in any Markdown file")
	}
}

func TestMarkdownLinksAreFound(t *testing.T) {
	t.Chdir(t.TempDir())

	text := "# The first, *loud* heading\n" +
		"[ok](there.md#part-2) and [gone](gone.md), ![picture](<picture.svg> \"title\")\n" +
		"`[code](code.md)` [self](#the-first-loud-heading) [nowhere](#nowhere) [web](https://example.com/x.md)\n" +
		"```\n[fenced](fenced.md)\n```\n" +
		"<img src=\"image.png\">\n\n[ref]: ref.md\n[out](../out.md) [root](/there.md)\n"

	for name, text := range map[string]string{"a.md": text, "there.md": "## Part 2\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	var bad []string

	for _, target := range readMarkdown(t, "a.md").targets {
		if brokenLink(t, "a.md", target) != "" {
			bad = append(bad, target)
		}
	}

	want := "gone.md picture.svg #nowhere image.png ref.md ../out.md /there.md"
	if got := strings.Join(bad, " "); got != want {
		t.Errorf("broken links: %s\nwant:         %s", got, want)
	}
}
