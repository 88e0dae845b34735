package policytest

import (
	"fmt"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

func canonical(name string) string { return textproto.CanonicalMIMEHeaderKey(name) }

// time reads when a test begins.
func (r *reader) time(f field) time.Time {
	if f.value.Kind == yaml.ScalarNode {
		if t, err := time.Parse(time.RFC3339Nano, f.value.Value); err == nil && t.Year() >= 1970 && t.Year() < 2100 {
			return t
		}
	}
	r.wrong(f.value, f.path, "must be a time with its zone, from 1970 to 2099", "write 2026-01-01T00:00:00Z, for instance")
	return begins
}

// duration reads how long to wait.
func (r *reader) duration(f field) time.Duration {
	if f.value.Kind == yaml.ScalarNode {
		if d, ok := parseDuration(f.value.Value); ok && d <= longestWait {
			return d
		}
	}
	r.wrong(f.value, f.path, "must be a duration such as 500ms, 90s, 1h30m or 30d, up to 3660d", "write 30s, for instance")
	return 0
}

// parseDuration reads the syntax of Go, with d for 24 hours and w for 7 days in front.
func parseDuration(s string) (time.Duration, bool) {
	var sum time.Duration
	for _, unit := range []struct {
		letter string
		length time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		number, rest, found := strings.Cut(s, unit.letter)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return 0, false
		}
		sum += time.Duration(n) * unit.length
		if s = rest; s == "" {
			return sum, true
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || strings.HasPrefix(s, "+") || strings.HasPrefix(s, "-") {
		return 0, false
	}
	return sum + d, true
}

// listed is "a, b", or "none".
func listed(words []string) string {
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

func count(n int64) string { return strconv.FormatInt(n, 10) }

// of is "3 of 5".
func of(n, all int64) string { return fmt.Sprintf("%d of %d", n, all) }
