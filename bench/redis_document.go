package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	redisHeading   = "## Limits in Redis\n"
	targetsHeading = "## Targets\n"
)

// UpdateRedis puts the section of limits in Redis, and its targets, into a document that was written by WriteMarkdown, in place
// of those that it has. All rows of the section must have been measured.
func (r Report) UpdateRedis(text string) (string, error) {
	if len(r.Redis.Rows) != len(redisLoads()) {
		return "", fmt.Errorf("bench: %d of %d rows of Redis were measured: all are needed for the document", len(r.Redis.Rows),
			len(redisLoads()))
	}
	var section strings.Builder
	if err := document.ExecuteTemplate(&section, "redis", r.documentView()); err != nil {
		return "", fmt.Errorf("bench: write the section of Redis: %w", err)
	}
	before, targets, ok := strings.Cut(text, "\n"+targetsHeading)
	if !ok {
		return "", errors.New("bench: the document has no section of targets")
	}
	if old, rest, ok := strings.Cut(before, redisHeading); !ok {
		before = strings.TrimRight(before, "\n") + "\n\n"
	} else if before = old; strings.Contains(rest, "\n## ") {
		return "", errors.New("bench: the section of Redis is not the last one before the targets")
	}
	lines := slices.DeleteFunc(slices.Collect(strings.Lines(targets)), func(line string) bool {
		return strings.HasPrefix(line, "| "+redisPrefix)
	})
	at := 0
	for i, line := range lines {
		if strings.HasPrefix(line, "## ") {
			break
		}
		if strings.HasPrefix(line, "| ") {
			at = i + 1
		}
	}
	lines = slices.Insert(lines, at, goalRows(r.Redis.goals())...)
	return before + strings.TrimSpace(section.String()) + "\n\n" + targetsHeading +
		strings.Join(lines, ""), nil
}

// goalRows are the lines of a table of targets.
func goalRows(goals []Goal) []string {
	var b strings.Builder
	goalTable(goals).writeMarkdown(&b)
	return slices.Collect(strings.Lines(b.String()))[2:]
}
