package ratelimitfields

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// What a bare item may be at the beginning of a text, as the grammar of RFC 9651 has it: its type, and how it is written.
var bareItems = []struct {
	kind itemKind
	form *regexp.Regexp
}{
	{decimalItem, regexp.MustCompile(`^-?\d{1,12}\.\d{1,3}`)},
	{integerItem, regexp.MustCompile(`^-?\d{1,15}`)},
	{stringItem, regexp.MustCompile(`^"(?:[^"\\\x00-\x1f\x7f-\x{10ffff}]|\\["\\])*"`)},
	{tokenItem, regexp.MustCompile("^[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*")},
	{bytesItem, regexp.MustCompile(`^:[A-Za-z0-9+/=]*:`)},
	{otherItem, regexp.MustCompile(`^\?[01]`)},
	{otherItem, regexp.MustCompile(`^@-?\d{1,15}`)},
	{otherItem, regexp.MustCompile(`^%"(?:[^"%\x00-\x1f\x7f-\x{10ffff}]|%[0-9a-f]{2})*"`)},
}

var (
	keyForm       = regexp.MustCompile(`^[a-z*][a-z0-9_.*-]*`)
	semicolonForm = regexp.MustCompile(`^; *`)
	commaForm     = regexp.MustCompile(`^[ \t]*,[ \t]*`)
	escapeForm    = regexp.MustCompile(`\\(.)`)
	percentForm   = regexp.MustCompile(`%[0-9a-f]{2}`)
)

// grammar reads a structured field by its forms. Unclear is true where the RFC leaves to a reader what to do.
type grammar struct {
	rest    string
	unclear bool
}

// cut cuts off what has a form.
func (g *grammar) cut(form *regexp.Regexp) (string, bool) {
	found := form.FindString(g.rest)
	g.rest = g.rest[len(found):]
	return found, found != ""
}

func (g *grammar) bare() (string, bool) {
	for _, b := range bareItems {
		text, ok := g.cut(b.form)
		if !ok {
			continue
		}
		switch b.kind {
		case integerItem:
			if strings.HasPrefix(g.rest, ".") || g.rest != "" && isDigit(g.rest[0]) {
				return "", false
			}
			n, err := strconv.Atoi(text)
			return fmt.Sprint("integer ", n), err == nil
		case decimalItem:
			return "decimal", g.rest == "" || !isDigit(g.rest[0])
		case stringItem:
			return "string " + escapeForm.ReplaceAllString(text[1:len(text)-1], "$1"), true
		case tokenItem:
			return "token " + text, true
		case bytesItem:
			content := strings.Trim(text, ":")
			decoded, err := base64.StdEncoding.DecodeString(content)
			if err != nil {
				decoded, err = base64.RawStdEncoding.DecodeString(content)
			}
			g.unclear = g.unclear || err != nil
			return "bytes " + string(decoded), true
		case otherItem:
			if text[0] == '@' && g.rest != "" && (g.rest[0] == '.' || isDigit(g.rest[0])) {
				return "", false
			}
			decoded := percentForm.ReplaceAllStringFunc(text, func(s string) string {
				c, _ := strconv.ParseUint(s[1:], 16, 8)
				return string([]byte{byte(c)})
			})
			return "other", utf8.ValidString(decoded)
		}
	}
	return "", false
}

func (g *grammar) parameters() (text string, ok bool) {
	var names []string
	values := map[string]string{}
	for {
		if _, more := g.cut(semicolonForm); !more {
			break
		}
		name, ok := g.cut(keyForm)
		if !ok {
			return "", false
		}
		value := "other"
		if strings.HasPrefix(g.rest, "=") {
			g.rest = g.rest[1:]
			if value, ok = g.bare(); !ok {
				return "", false
			}
		}
		names = append(names, name)
		values[name] = value
	}
	return sorted(names, func(name string) string { return values[name] }), true
}

// members are those of a list or a dictionary, each as text.
func (g *grammar) members(keyed bool) (all []string, ok bool) {
	g.rest = strings.Trim(g.rest, " ")
	for {
		key, value := "", "other"
		if keyed {
			name, ok := g.cut(keyForm)
			if !ok {
				return nil, false
			}
			key = name
		}
		rest, assigned := strings.CutPrefix(g.rest, "=")
		if keyed {
			g.rest = rest
		}
		if !keyed || assigned {
			bare, ok := g.bare()
			if !ok {
				return nil, false
			}
			value = bare
		}
		parameters, ok := g.parameters()
		if !ok {
			return nil, false
		}
		all = append(all, fmt.Sprintf("%s=%q%s", key, value, parameters))
		if strings.Trim(g.rest, " \t") == "" {
			return all, true
		}
		if _, ok := g.cut(commaForm); !ok {
			return nil, false
		}
	}
}

// asGrammar is an item in the form of the grammar.
func asGrammar(item *fieldItem) string {
	value := func(b *bareItem) string {
		switch b.kind {
		case integerItem:
			return fmt.Sprint("integer ", b.integer)
		case decimalItem:
			return "decimal"
		case stringItem:
			return "string " + b.text
		case tokenItem:
			return "token " + b.text
		case bytesItem:
			return "bytes " + b.text
		case otherItem:
		}
		return "other"
	}
	var names []string
	for _, p := range item.parameters {
		names = append(names, p.name)
	}
	return fmt.Sprintf("%s=%q", item.key, value(&item.value)) + sorted(names, func(name string) string {
		v, _ := item.parameter(name)
		return value(&v)
	})
}

// sorted are parameters by their names.
func sorted(names []string, value func(name string) string) string {
	slices.Sort(names)
	var b strings.Builder
	for _, name := range slices.Compact(names) {
		fmt.Fprintf(&b, ";%s=%q", name, value(name))
	}
	return b.String()
}

// FuzzStructuredFields compares what is read of a field with the grammar of RFC 9651, for those without an Inner List, which are
// refused.
func FuzzStructuredFields(f *testing.F) {
	for _, seed := range []string{
		`"burst";r=50;t=30, "daily";r=900;  t=36000;r=-7`, "limit=100;x, remaining=50\t,\treset=0005",
		`a;pk=:YQ==:;x=@5;y=?1;z=%"%c3%bc"`,
		"a, b\nc", "*=1.5, a.b_c-d*", `"a\"b\\"`, "1234567890123.1", "1.2345", "-, 5", "a=?2",
		`a;x=%"%C3%BC"`, `a;x=%"%ff"`, `a;x=%"%4"`, "::, :a:",
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, text string, keyed bool) {
		values := strings.Split(text, "\n")
		g := grammar{rest: strings.Join(values, ", ")}
		if len(g.rest) > longestField {
			return
		}
		want, valid := g.members(keyed)
		items, ok := readMembers(values, keyed)
		var got []string
		for i := range items {
			got = append(got, asGrammar(&items[i]))
		}
		switch {
		case g.unclear, len(want) > mostItems, strings.Count(text, ";") > mostParameters:
		case ok != valid:
			t.Errorf("%q, keys %t: read is %t %q, the grammar has %t %q", text, keyed, ok, got, valid, want)
		case ok && !slices.Equal(got, want):
			t.Errorf("%q, keys %t: read is %q, the grammar has %q", text, keyed, got, want)
		}
	})
}
