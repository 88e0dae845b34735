package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/weirhq/weir/algo"
)

// scalar is a value that is no mapping and no list, with the environment put in.
type scalar struct {
	value
	expansion
}

// wrong is a mistake in a scalar at the byte at of its expanded text.
func (d *decoder) wrongAt(s scalar, at int, message, fix string) {
	m := d.about(s.value, message, fix)
	m.Line, m.Column = d.source.position(s.node, s.before(at))
	d.add(m)
}

// scalar reads a value of which the text counts. It adds a mistake if it is none, or if the environment lacks a variable.
func (d *decoder) scalar(v value, must, fix string) (scalar, bool) {
	if v.node.Kind != yaml.ScalarNode || v.isNull() {
		d.wrong(v, describe(v)+": must be "+must, fix)
		return scalar{}, false
	}
	x, wrong := expand(v.node.Value, d.env)
	if wrong != nil {
		m := d.about(v, wrong.message, wrong.fix)
		m.Line, m.Column = d.source.position(v.node, wrong.at)
		d.add(m)
		return scalar{}, false
	}
	if x.env {
		d.shown[v.path] = v.node.Value
	}
	return scalar{v, x}, true
}

// isText reports whether a scalar is a string for YAML, or came from the environment.
func (s scalar) isText() bool { return s.env || s.node.ShortTag() == "!!str" }

// text reads a string.
func (d *decoder) text(v value, must, fix string) (scalar, bool) {
	s, ok := d.scalar(v, must, fix)
	if ok && !s.isText() {
		d.wrong(v, describe(v)+" for YAML: must be "+must, "write it in quotes: "+strconv.Quote(shorten(v.node.Value)))
		return s, false
	}
	return s, ok
}

// choice reads one of several words.
func (d *decoder) choice(v value, words []string, hints map[string]string) (string, bool) {
	must := "must be " + oneOf(words)
	s, ok := d.scalar(v, oneOf(words), "write "+words[0])
	if !ok {
		return "", false
	}
	for _, w := range words {
		if w == s.text {
			return w, true
		}
	}
	fix := "write " + words[0]
	if !s.env {
		fix = meant(s.text, words, fix)
		if hint, hinted := hints[s.text]; hinted {
			fix = "did you mean " + strconv.Quote(hint) + "?"
		}
	}
	d.wrong(v, "unknown: "+must, fix)
	return "", false
}

// number reads an integer from lo to hi. A number in quotes is text, except if it came from the environment.
func (d *decoder) number(v value, lo, hi int64, what string) (int64, bool) {
	must := fmt.Sprintf("must be %s from %s to %s", what, count(lo), count(hi))
	fix := fmt.Sprintf("write %d, for instance", max(lo, min(hi, 100)))
	s, ok := d.scalar(v, strings.TrimPrefix(must, "must be "), fix)
	if !ok {
		return 0, false
	}
	n, valid := integer(s.text)
	switch {
	case !valid && !s.env && s.node.ShortTag() == tagInt:
		d.wrong(v, "is not written as a decimal number: "+must, fix)
	case !valid:
		d.wrong(v, "is not a whole number: "+must, fix)
	case !s.env && s.node.ShortTag() == "!!str":
		d.wrong(v, "is text: "+must, fmt.Sprintf("write %d, without quotes", n))
	case n < lo:
		d.wrong(v, "is too small: "+must, fmt.Sprintf("write %d or more", lo))
	case n > hi:
		d.wrong(v, "is too large: "+must, fmt.Sprintf("write %d or less", hi))
	default:
		return n, true
	}
	return 0, false
}

// integer reads a decimal number, with single underscores between digits if there are any.
func integer(s string) (int64, bool) {
	digits := strings.TrimPrefix(s, "-")
	if digits == "" || digits != "0" && digits[0] == '0' || digits[0] == '_' || digits[len(digits)-1] == '_' ||
		strings.Contains(digits, "__") || strings.Trim(digits, "0123456789_") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
	if err != nil { // it is a number, and beyond any range
		if s[0] == '-' {
			return -1 << 63, true
		}
		return 1<<63 - 1, true
	}
	return n, true
}

// count writes a number as people do.
func count(n int64) string {
	switch n {
	case algo.MaxPermits:
		return "10^15"
	case 1 << 31:
		return "2^31"
	}
	return strconv.FormatInt(n, 10)
}

// boolean reads true or false. It is false after a mistake.
func (d *decoder) boolean(v value) bool {
	s, ok := d.scalar(v, "true or false", "write true")
	if !ok {
		return false
	}
	if s.env || s.node.ShortTag() == "!!bool" {
		switch s.text {
		case "true":
			return true
		case "false":
			return false
		}
	}
	fix := "write true or false, without quotes"
	switch strings.ToLower(s.node.Value) {
	case "yes", "on", "y", "true":
		fix = "write true, without quotes"
	case "no", "off", "n", "false":
		fix = "write false, without quotes"
	}
	d.wrong(v, "must be true or false", fix)
	return false
}

// duration reads a time from lo to hi. It is 0 after a mistake.
func (d *decoder) duration(v value, lo, hi time.Duration) time.Duration {
	must := fmt.Sprintf("a duration from %s to %s", shortDuration(lo), shortDuration(hi))
	fix := "write " + shortDuration(max(lo, min(hi, time.Minute))) + ", for instance"
	s, ok := d.scalar(v, must, fix)
	if !ok {
		return 0
	}
	t, valid := parseDuration(s.text)
	switch {
	case !valid:
		if n, isNumber := integer(s.text); isNumber && !s.env && n > 0 {
			unit := "s"
			if n > int64(hi/time.Second) && n <= int64(hi/time.Millisecond) {
				unit = "ms" // of seconds it would be too long
			}
			fix = fmt.Sprintf("write the unit: %d%s", n, unit)
		} else if meant := durationMeant(s.text); meant != "" && !s.env {
			if t, _ = parseDuration(meant); t >= lo && t <= hi {
				fix = "write " + meant
			}
		}
		d.wrong(v, `is not a duration such as 90s, 1h30m or 30d: must be `+must, fix)
	case t < lo:
		d.wrong(v, "is too short: must be "+must, "write "+shortDuration(lo)+" or more")
	case t > hi:
		d.wrong(v, "is too long: must be "+must, "write "+shortDuration(hi)+" or less")
	default:
		return t
	}
	return 0
}

// parseDuration reads the syntax of Go, with d for 24 hours and w for 7 days in front.
func parseDuration(s string) (time.Duration, bool) {
	var long time.Duration
	for _, unit := range []struct {
		letter byte
		length time.Duration
	}{{'w', 7 * 24 * time.Hour}, {'d', 24 * time.Hour}} {
		i := strings.IndexByte(s, unit.letter)
		if i < 0 {
			continue
		}
		n, err := strconv.ParseUint(s[:i], 10, 31)
		if err != nil || n > uint64((1<<62)/unit.length) {
			return 0, false
		}
		long += time.Duration(n) * unit.length
		if s = s[i+1:]; s == "" {
			return long, long >= 0
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || long+d < 0 || strings.HasPrefix(s, "+") || strings.HasPrefix(s, "-") {
		return 0, false
	}
	return long + d, true
}

// shortDuration writes a duration without units that are zero, and whole days as such.
func shortDuration(d time.Duration) string {
	const day = 24 * time.Hour
	if d > 0 && d%day == 0 && d != day {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// isName reports whether s can be a name of at most so many printable ASCII characters, without those in except.
func isName(s string, most int, except string) bool {
	if s == "" || len(s) > most || strings.ContainsAny(s, except) {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
