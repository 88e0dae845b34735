package live

import (
	"errors"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirhq/weir/policy"
)

// redactor puts the names of variables of the environment in the place of their values.
type redactor struct {
	values map[string]string // by value
	inside *strings.Replacer // for values that are long enough to be looked for within a text
}

// shortest is how long a value must be to be looked for within a text. A shorter one is replaced only where it is all there is:
// "1" is in every other number.
const shortest = 4

// newRedactor knows secrets, and those that were secrets before.
func newRedactor(secrets map[string]string, before *redactor) *redactor {
	r := &redactor{values: map[string]string{}}
	if before != nil {
		maps.Copy(r.values, before.values)
	}
	for name, value := range secrets {
		if value != "" {
			r.values[value] = "${" + name + "}"
		}
	}
	// Of two values that begin alike the longer one counts.
	all := slices.SortedFunc(maps.Keys(r.values), func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, value := range all {
		if len(value) >= shortest {
			pairs = append(pairs, value, r.values[value])
		}
	}
	r.inside = strings.NewReplacer(pairs...)
	return r
}

// clean is text without secrets.
func (r *redactor) clean(text string) string {
	if len(r.values) == 0 {
		return text
	}
	if name, ok := r.values[text]; ok {
		return name
	}
	return r.inside.Replace(text)
}

// Clean is text without what came from the environment.
func (l *Limits) Clean(text string) string { return l.secrets.Load().clean(text) }

// clean is an explanation without secrets.
func (l *Limits) clean(e policy.Explanation) policy.Explanation {
	secrets := l.secrets.Load()
	for i := range e.Rules {
		e.Rules[i].Condition = secrets.clean(e.Rules[i].Condition)
	}
	for i := range e.Limits {
		limit := &e.Limits[i]
		for _, text := range []*string{&limit.Holds, &limit.Key, &limit.KeyFrom, &limit.Failure, &limit.Would} {
			*text = secrets.clean(*text)
		}
	}
	return e
}

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

// withoutPasswords is the text of a file without passwords, or withheld. What was taken out as text is compared as YAML with what
// was there, of which there are more ways to write a password than those above.
func withoutPasswords(text string) string {
	was := yaml.NewDecoder(strings.NewReader(text))
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
	is := yaml.NewDecoder(strings.NewReader(text))
	for {
		var before, after yaml.Node
		wrong, err := was.Decode(&before), is.Decode(&after)
		if errors.Is(wrong, io.EOF) && errors.Is(err, io.EOF) {
			return text
		}
		if wrong != nil || err != nil || hasPassword(&after) || !isSame(&before, &after) {
			return withheld
		}
	}
}

// isSame reports whether a node is what it was apart from passwords: a text that looks like one may have been part of another.
func isSame(was, is *yaml.Node) bool {
	if was.Kind != is.Kind || len(was.Content) != len(is.Content) {
		return false
	}
	if len(was.Content) == 0 {
		return was.Value == is.Value || isURLWithPassword(was.Value)
	}
	for i, child := range was.Content {
		told := is.Content[i]
		isValue := was.Kind == yaml.MappingNode && i%2 == 1
		if isValue && told.Value == hidden && isPassword.MatchString(was.Content[i-1].Value) {
			continue
		}
		if !isSame(child, told) {
			return false
		}
	}
	return true
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
