package yamlread

import (
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
)

// mostCompared bounds the names that a misspelled one is compared to.
const mostCompared = 10_000

// Nearest returns the name that may have been meant by s, "" if none is near.
func Nearest(s string, names []string) string {
	if len(s) > 128 || s == "" {
		return ""
	}
	s = strings.ToLower(s)
	best, least := "", tolerance(len(s))+1
	for _, name := range names[:min(len(names), mostCompared)] {
		lower := strings.ToLower(name)
		if d := len(lower) - len(s); d >= least || -d >= least {
			continue
		}
		if d := levenshtein.ComputeDistance(s, lower); d < least {
			best, least = name, d
		}
	}
	if best != "" {
		return best
	}
	flat := strings.NewReplacer("-", "", "_", "", " ", "")
	for _, name := range names[:min(len(names), mostCompared)] {
		if flat.Replace(s) == flat.Replace(strings.ToLower(name)) {
			return name
		}
	}
	return ""
}

// tolerance is how many letters of so many may be wrong.
func tolerance(letters int) int {
	switch {
	case letters < 4:
		return 1
	case letters < 9:
		return 2
	}
	return letters / 3
}

// Meant proposes the nearest name, or otherwise something else.
func Meant(s string, names []string, otherwise string) string {
	if name := Nearest(s, names); name != "" {
		return "did you mean " + strconv.Quote(name) + "?"
	}
	return otherwise
}

// OneOf lists names: "a, b or c".
func OneOf(names []string) string {
	switch len(names) {
	case 0:
		return "nothing"
	case 1:
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}
