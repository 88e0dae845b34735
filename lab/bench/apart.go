package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

const targetsHeading = "## Targets\n"

// apart is a section of the document that can be measured and rewritten by itself, with its targets.
type apart struct {
	heading  string // the line of it
	prefix   string // of the names of its rows and targets
	template string
	goals    func(r Report) []Goal
	measured func(r Report) int // how many of its rows were
	rows     int
}

// aparts are these sections in the order of the document, in which they stand last before the targets.
func aparts() []apart {
	return []apart{
		{
			"## Limits in Redis\n", redisPrefix, "redis", func(r Report) []Goal { return r.Redis.goals() },
			func(r Report) int { return len(r.Redis.Rows) }, len(redisLoads()),
		},
		{
			"## Durable limits\n", durablePrefix, "durable", func(r Report) []Goal { return r.Durable.goals() },
			func(r Report) int { return len(r.Durable.Rows) }, len(durableLoads()),
		},
		{
			"## Servers\n", wirePrefix, "wire", func(r Report) []Goal { return r.Wire.goals() },
			func(r Report) int { return len(r.Wire.Rows) }, len(wireLoads()),
		},
	}
}

// Prefixes begin the names of the rows that Update can write by themselves.
func Prefixes() (all []string) {
	for _, a := range aparts() {
		all = append(all, a.prefix)
	}
	return all
}

// Update puts the sections of limits in Redis, of durable limits and of servers, as far as they were measured, and their targets,
// into a document that was written by WriteMarkdown, in place of those that it has. Of a section that is written all rows must
// have been measured.
func (r Report) Update(text string) (string, error) {
	some := false
	all := aparts()
	for i, a := range all {
		n := a.measured(r)
		if n == 0 {
			continue
		}
		if n != a.rows {
			return "", fmt.Errorf("bench: %d of %d rows of %q were measured: all are needed for the document",
				n, a.rows, a.prefix)
		}
		some = true
		var err error
		if text, err = r.replace(text, a, all[i+1:]); err != nil {
			return "", err
		}
	}
	if !some {
		return "", errors.New("bench: no section of the document was measured")
	}
	return text, nil
}

// replace replaces a section, which stands before others, in a document.
func (r Report) replace(text string, a apart, later []apart) (string, error) {
	var section strings.Builder
	if err := document.ExecuteTemplate(&section, a.template, r.documentView()); err != nil {
		return "", fmt.Errorf("bench: write the section %q: %w", a.prefix, err)
	}
	body, targets, ok := strings.Cut(text, "\n"+targetsHeading)
	if !ok {
		return "", errors.New("bench: the document has no section of targets")
	}
	before, after := body, ""
	if at := strings.Index(body, "\n"+a.heading); at >= 0 {
		before = body[:at+1]
		if end := strings.Index(body[at+1:], "\n## "); end >= 0 {
			after = body[at+1+end:]
		}
	} else {
		for _, l := range later {
			if at := strings.Index(body, "\n"+l.heading); at >= 0 {
				before, after = body[:at], body[at:]
				break
			}
		}
		before = strings.TrimRight(before, "\n") + "\n\n"
	}
	parts := []string{strings.TrimSpace(section.String())}
	if after = strings.TrimSpace(after); after != "" {
		parts = append(parts, after)
	}
	return before + strings.Join(append(parts, targetsHeading), "\n\n") + replaceTargets(targets, a, later, a.goals(r)), nil
}

// replaceTargets replaces the targets of a section in what stands below their heading.
func replaceTargets(targets string, a apart, later []apart, goals []Goal) string {
	lines := slices.DeleteFunc(slices.Collect(strings.Lines(targets)), func(line string) bool {
		return strings.HasPrefix(line, "| "+a.prefix)
	})
	at := 0
	for i, line := range lines {
		of := func(l apart) bool { return strings.HasPrefix(line, "| "+l.prefix) }
		if strings.HasPrefix(line, "## ") || slices.ContainsFunc(later, of) {
			break
		}
		if strings.HasPrefix(line, "| ") {
			at = i + 1
		}
	}
	return strings.Join(slices.Insert(lines, at, goalRows(goals)...), "")
}

// goalRows are the lines of a table of targets.
func goalRows(goals []Goal) []string {
	var b strings.Builder
	goalTable(goals).writeMarkdown(&b)
	return slices.Collect(strings.Lines(b.String()))[2:]
}
