package reference

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// prose turns the text of a help, which is wrapped for a terminal, into Markdown: what is indented there is code here.
func prose(text string) string {
	var b strings.Builder
	var paragraph, code []string
	flush := func() {
		if len(paragraph) > 0 {
			b.WriteString(inline(strings.Join(paragraph, " ")) + "\n\n")
			paragraph = nil
		}
		for len(code) > 0 && code[len(code)-1] == "" {
			code = code[:len(code)-1]
		}
		if len(code) > 0 {
			b.WriteString("```text\n" + strings.Join(code, "\n") + "\n```\n\n")
			code = nil
		}
	}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		line = strings.TrimRight(line, " \t\r")
		indented := strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "\t")
		switch {
		case indented:
			if len(paragraph) > 0 {
				flush()
			}
			code = append(code, strings.TrimPrefix(strings.TrimPrefix(line, "\t"), "  "))
		case line == "" && len(code) > 0:
			code = append(code, "") // what follows reports whether it goes on
		case line == "":
			flush()
		default:
			if len(code) > 0 {
				flush()
			}
			paragraph = append(paragraph, strings.TrimLeft(line, "# "))
		}
	}
	flush()
	return strings.TrimRight(b.String(), "\n") + "\n"
}

var (
	// quotedCommand is a command of the program in a sentence, quoted anything else in quotes, pageName that of a page of the
	// documentation.
	quotedCommand = regexp.MustCompile(`"(weir [a-z][a-z -]*)"`)
	quoted        = regexp.MustCompile(`(^|[\s(])(?:"([^"` + "`" + `]+)"|'([^'` + "`" + `]+)')($|[\s.,;:)?])`)
	pageName      = regexp.MustCompile(`^docs/([a-z-]+)\.md$`)
)

// inline turns a sentence into Markdown. What is written as a program reads it, such as a flag, becomes code.
func inline(text string) string {
	text = quotedCommand.ReplaceAllStringFunc(text, func(s string) string {
		return "`" + strings.ReplaceAll(strings.Trim(s, `"`), " ", "\u00a0") + "`"
	})
	text = quoted.ReplaceAllStringFunc(text, func(s string) string {
		parts := quoted.FindStringSubmatch(s)
		said := parts[2] + parts[3]
		if !slices.ContainsFunc(strings.Fields(said), isCode) {
			return s
		}
		return parts[1] + "`" + strings.ReplaceAll(said, " ", "\u00a0") + "`" + parts[4]
	})
	words := strings.Split(text, " ")
	for i, word := range words {
		words[i] = mark(word)
	}
	return strings.ReplaceAll(strings.Join(words, " "), "\u00a0", " ")
}

// mark makes a word a link or code if it is not one of English.
func mark(word string) string {
	core := strings.TrimLeft(word, "(")
	before := word[:len(word)-len(core)]
	core = strings.TrimRight(core, ".,;:)?")
	after := word[len(before)+len(core):]
	if strings.HasPrefix(core, "`") {
		return word
	}
	if found := pageName.FindStringSubmatch(core); found != nil {
		return before + "[" + core + "](../" + found[1] + ".md)" + after
	}
	if isCode(core) {
		return before + "`" + core + "`" + after
	}
	return word
}

// isCode reports whether a word is one that a program reads.
func isCode(word string) bool {
	return strings.HasPrefix(word, "--") || strings.ContainsAny(word, "_*<>|{}[]$\\=") || strings.Contains(word, "://") ||
		strings.HasPrefix(word, "/") && len(word) > 1
}

// cell is a sentence in a table, or a heading.
func cell(text string) string {
	if text != "" && !strings.HasPrefix(text, "`") {
		text = inline(text)
	}
	text = strings.ReplaceAll(text, "|", `\|`)
	// The first letter stays as it is: texts of flags begin in lower case, those of commands do not.
	return strings.TrimFunc(text, unicode.IsSpace)
}
