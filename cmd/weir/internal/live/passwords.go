package live

import (
	"errors"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Passwords that stand in a file as they are: in URLs, as values of their own, also in comments, and as those of an object in
// one line. What comes from the environment stays.
var passwords = []*regexp.Regexp{
	regexp.MustCompile(`(://[^\s/@:"']*:)([^\s/"]*)(@)`),
	regexp.MustCompile(`(://)([^\s/@:"']+)(@)`),
	regexp.MustCompile(`(?m)^((?:[ \t]*#)*[ \t]*(?:- )?["']?[A-Za-z_]*password["']?[ \t]*:[ \t]+)(\S.*)($)`),
	regexp.MustCompile(`([{,][ \t]*["']?[A-Za-z_]*password["']?[ \t]*:[ \t]*)("[^"]*"|'[^']*'|\$\{[^}]*\}|[^\s,{}"'][^,}]*)()`),
}

var (
	isPassword  = regexp.MustCompile(`password$`)
	isReference = regexp.MustCompile(`^\$\{[A-Za-z_][A-Za-z0-9_]*\}$`)
)

const (
	// hidden stands for a password.
	hidden = "(hidden)"
	// withheld stands for a file.
	withheld = "# This file is not shown: a password is in it in a form that cannot be taken out.\n"
)

// withoutPasswords is the text of a file without passwords, or withheld. What was taken out as text is looked for again as YAML,
// of which there are more ways to write a password than those above.
func withoutPasswords(text string) string {
	for _, of := range passwords {
		text = of.ReplaceAllStringFunc(text, func(s string) string {
			parts := of.FindStringSubmatch(s)
			// What an alias stands for is elsewhere.
			if isShown(strings.Trim(parts[2], `"'`)) || parts[2][0] == '*' {
				return s
			}
			return parts[1] + hidden + parts[3]
		})
	}
	documents := yaml.NewDecoder(strings.NewReader(text))
	for {
		var document yaml.Node
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			return text
		}
		if err != nil || hasPassword(&document) {
			return withheld
		}
	}
}

// isShown reports whether a text in the place of a password is none.
func isShown(text string) bool { return text == "" || text == hidden || isReference.MatchString(text) }

// hasPassword reports whether there is a password in a node, or in those below.
func hasPassword(n *yaml.Node) bool {
	if n.Kind == yaml.ScalarNode {
		return isURLWithPassword(n.Value)
	}
	for i, child := range n.Content {
		if hasPassword(child) {
			return true
		}
		if n.Kind != yaml.MappingNode || i%2 == 0 || !isPassword.MatchString(n.Content[i-1].Value) {
			continue
		}
		if child.Kind == yaml.AliasNode || child.Kind == yaml.ScalarNode && child.Tag != "!!null" && !isShown(child.Value) {
			return true
		}
	}
	return false
}

func isURLWithPassword(text string) bool {
	_, rest, ok := strings.Cut(text, "://")
	if !ok {
		return false
	}
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	at := strings.LastIndexByte(rest, '@')
	if at < 0 || isShown(rest[:at]) {
		return false
	}
	_, password, has := strings.Cut(rest[:at], ":")
	return !has || !isShown(password)
}
