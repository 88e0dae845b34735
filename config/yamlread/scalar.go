package yamlread

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/inwords"
)

// The tags of scalars by which a number and a truth value are told from text.
const (
	TagInt  = "!!int"
	tagBool = "!!bool"
	tagText = "!!str"
)

// Scalar is a value that is no mapping and no list, with the environment put in.
type Scalar struct {
	Value

	// Text is what it stands for. FromEnv is true if something of it came from the
	// environment, so that it must not be shown.
	Text    string
	FromEnv bool

	expanded expansion
}

// WrongWithin adds a mistake about the byte at of the text.
func (r *Reader) WrongWithin(s Scalar, at int, message, fix string) {
	m := r.about(s.Value, message, fix)
	m.Line, m.Column = r.position(s.Node, s.expanded.before(at))
	r.Mistakes.Add(m)
}

// Scalar reads a value of which the text counts. It adds a mistake if it is none, or if the environment lacks a variable.
func (r *Reader) Scalar(v Value, must, fix string) (Scalar, bool) {
	return r.ShownScalar(v, nil, must, fix)
}

// ShownScalar is Scalar for a value that is shown as something else, "" for nothing.
func (r *Reader) ShownScalar(v Value, show func(written string) string, must, fix string) (Scalar, bool) {
	if show == nil {
		show = func(written string) string { return written }
	}
	if !v.IsScalar() || v.IsNull() {
		m := r.about(v, r.wrongKind(v, must), fix)
		m.Value = show(m.Value)
		r.Mistakes.Add(m)
		return Scalar{}, false
	}
	x, wrong := expand(v.Node.Value, r.o.Env)
	if wrong != nil {
		m := r.about(v, wrong.message, wrong.fix)
		m.Value = Shorten(show(v.Node.Value))
		m.Line, m.Column = r.position(v.Node, wrong.at)
		r.Mistakes.Add(m)
		return Scalar{}, false
	}
	if x.env {
		r.Shown[v.Path] = show(v.Node.Value)
	}
	return Scalar{v, x.text, x.env, x}, true
}

// IsText reports whether a scalar is a string for YAML, or came from the environment.
func (s Scalar) IsText() bool { return s.FromEnv || s.Node.ShortTag() == tagText }

// IsInt reports whether a scalar is a whole number for YAML, or came from the environment.
func (s Scalar) IsInt() bool { return s.FromEnv || s.Node.ShortTag() == TagInt }

// Text reads a string.
func (r *Reader) Text(v Value, must, fix string) (Scalar, bool) {
	s, ok := r.Scalar(v, must, fix)
	if ok && !s.IsText() {
		r.Wrong(v, r.found(v)+" for YAML: must be "+must, "write it in quotes: "+strconv.Quote(Shorten(v.Node.Value)))
		return s, false
	}
	return s, ok
}

// Name reads a name of at most so many printable ASCII characters, without those in except.
func (r *Reader) Name(v Value, must string, most int, except string) (string, bool) {
	s, ok := r.Text(v, must, "write a short name")
	if !ok {
		return "", false
	}
	if !IsName(s.Text, most, except) {
		r.Wrong(v, "must be "+must, "use letters, digits and hyphens")
		return "", false
	}
	return s.Text, true
}

// Choice reads one of several words. Hints are the words that others stand for, or what to do, in several words.
func (r *Reader) Choice(v Value, words []string, hints map[string]string) (string, bool) {
	must := "must be " + OneOf(words)
	s, ok := r.Scalar(v, OneOf(words), "write "+words[0])
	if !ok {
		return "", false
	}
	if slices.Contains(words, s.Text) {
		return s.Text, true
	}
	fix := "write one of these"
	if !s.FromEnv {
		fix = Meant(s.Text, words, fix)
		switch hint, hinted := hints[s.Text]; {
		case hinted && strings.Contains(hint, " "):
			fix = hint
		case hinted:
			fix = "did you mean " + strconv.Quote(hint) + "?"
		}
	}
	r.Wrong(v, "unknown: "+must, fix)
	return "", false
}

// Number reads an integer from lo to hi. A number in quotes is text, except if it came from the environment.
func (r *Reader) Number(v Value, lo, hi int64, what string) (int64, bool) {
	must := fmt.Sprintf("must be %s from %s to %s", what, Count(lo), Count(hi))
	fix := fmt.Sprintf("write %d, for instance", max(lo, min(hi, 100)))
	s, ok := r.Scalar(v, strings.TrimPrefix(must, "must be "), fix)
	if !ok {
		return 0, false
	}
	n, valid := Integer(s.Text)
	if meant, isMeant := Integer(NumberMeant(s.Text)); isMeant && !s.FromEnv && meant >= lo && meant <= hi {
		fix = fmt.Sprintf("write %d", meant)
	}
	switch {
	case !valid && !s.FromEnv && s.IsInt():
		r.Wrong(v, "is not written as a decimal number: "+must, fix)
	case !valid:
		r.Wrong(v, "is not a whole number: "+must, fix)
	case !s.FromEnv && s.IsText():
		r.Wrong(v, "is text: "+must, fmt.Sprintf("write %d, without quotes", n))
	case n < lo:
		r.Wrong(v, "is too small: "+must, fmt.Sprintf("write %d or more", lo))
	case n > hi:
		r.Wrong(v, "is too large: "+must, fmt.Sprintf("write %d or less", hi))
	default:
		return n, true
	}
	return 0, false
}

// Integer reads a decimal number, with single underscores between digits if there are any.
func Integer(s string) (int64, bool) {
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

// Count writes a number as people do.
func Count(n int64) string {
	switch n {
	case 1_000_000_000_000_000:
		return "10^15"
	case 1 << 31:
		return "2^31"
	}
	return strconv.FormatInt(n, 10)
}

// Boolean reads true or false. It is false after a mistake.
func (r *Reader) Boolean(v Value) bool {
	s, ok := r.Scalar(v, "true or false", "write true")
	if !ok {
		return false
	}
	if s.FromEnv || s.Node.ShortTag() == tagBool {
		switch s.Text {
		case "true":
			return true
		case "false":
			return false
		}
	}
	fix := "write true or false, without quotes"
	if meant := BooleanMeant(s.Node.Value); meant != "" {
		fix = "write " + meant + ", without quotes"
	}
	r.Wrong(v, "must be true or false", fix)
	return false
}

// Duration reads a time from lo to hi. It is 0 after a mistake.
func (r *Reader) Duration(v Value, lo, hi time.Duration) time.Duration {
	must := fmt.Sprintf("a duration from %s to %s", ShortDuration(lo), ShortDuration(hi))
	fix := "write " + ShortDuration(max(lo, min(hi, time.Minute))) + ", for instance"
	s, ok := r.Scalar(v, must, fix)
	if !ok {
		return 0
	}
	t, valid := ParseDuration(s.Text)
	switch {
	case !valid:
		if n, isNumber := Integer(s.Text); isNumber && !s.FromEnv && n > 0 {
			unit := "s"
			if n > int64(hi/time.Second) && n <= int64(hi/time.Millisecond) {
				unit = "ms" // of seconds it would be too long
			}
			fix = fmt.Sprintf("write the unit: %d%s", n, unit)
		} else if meant := DurationMeant(s.Text); meant != "" && !s.FromEnv {
			if t, _ = ParseDuration(meant); t >= lo && t <= hi {
				fix = "write " + meant
			}
		}
		r.Wrong(v, `is not a duration such as 90s, 1h30m or 30d: must be `+must, fix)
	case t < lo:
		r.Wrong(v, "is too short: must be "+must, "write "+ShortDuration(lo)+" or more")
	case t > hi:
		r.Wrong(v, "is too long: must be "+must, "write "+ShortDuration(hi)+" or less")
	default:
		return t
	}
	return 0
}

// ParseDuration reads the syntax of Go, with d for 24 hours and w for 7 days in front.
func ParseDuration(s string) (time.Duration, bool) {
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

// ShortDuration writes a duration without units that are zero, and whole days as such.
func ShortDuration(d time.Duration) string {
	const day = 24 * time.Hour
	if d > 0 && d%day == 0 && d != day {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	return inwords.Short(d)
}

// IsName reports whether s can be a name of at most so many printable ASCII characters, without those in except.
func IsName(s string, most int, except string) bool {
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
