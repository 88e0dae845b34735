package accesslog

import (
	"bytes"
	"errors"
	"strconv"
	"time"
)

// The years whose every instant fits into int64 nanoseconds since 1970.
const (
	minYear = 1970
	maxYear = 2261
)

const maxOffset = 14 * 3600 // seconds

// Reasons for which a time is refused.
const (
	wantTime     = "want a time such as 17/May/2015:10:05:03 +0000, 2015-05-17T10:05:03Z or 1431857103.123"
	wantDigits   = "want digits in the date and the time of day"
	wantYear     = "year not in 1970 to 2261"
	wantMonth    = "unknown month, want Jan to Dec or 01 to 12"
	wantDay      = "no such day in that month"
	wantHour     = "hour not in 00 to 23"
	wantMinute   = "minute not in 00 to 59"
	wantSecond   = "second not in 00 to 59"
	wantLeap     = "second 60 at another instant than 23:59:60 UTC"
	wantFraction = "no digits after the decimal point"
	wantOffset   = "offset not a time zone from -1400 to +1400"
	wantEpoch    = "number not a time since the epoch, want seconds, milliseconds, microseconds or nanoseconds of 1973 to 2261"
)

// clock parses times. Lines of a log mostly share their minute and their offset
// with the line before, so it keeps the last of both.
type clock struct {
	minuteText  [17]byte // dd/Mon/yyyy:hh:mm
	minute      int64    // its start in seconds since the epoch, read as UTC
	minuteKnown bool

	offsetText  [5]byte // +hhmm
	offset      int64   // seconds east of UTC
	offsetKnown bool
}

// parse reads a time in any of the accepted forms and returns nanoseconds since
// the epoch. refused is empty, or the reason why b is not a time.
func (c *clock) parse(b []byte) (ns int64, refused string) {
	switch {
	case len(b) >= len("02/Jan/2006:15:04:05") && b[2] == '/':
		return c.parseNCSA(b)
	case len(b) >= len("2006-01-02T15:04:05") && (b[4] == '-' || b[4] == '/') && isDigit(b[0]):
		return c.parseISO(b)
	case len(b) > 0 && isDigit(b[0]):
		return parseEpoch(b)
	}
	return 0, wantTime
}

// parseNCSA reads dd/Mon/yyyy:hh:mm:ss[.fraction] +hhmm. b is at least as long
// as that without fraction and offset.
func (c *clock) parseNCSA(b []byte) (int64, string) {
	if !c.minuteKnown || !bytes.Equal(b[:17], c.minuteText[:]) {
		if b[6] != '/' || b[11] != ':' || b[14] != ':' {
			return 0, wantTime
		}
		month := monthNumber(b[3], b[4], b[5])
		if month == 0 {
			return 0, wantMonth
		}
		minute, refused := minuteStart(number(b[7:11]), month, number(b[:2]), number(b[12:14]), number(b[15:17]))
		if refused != "" {
			return 0, refused
		}
		c.minute, c.minuteKnown = minute, true
		copy(c.minuteText[:], b)
	}
	if b[17] != ':' {
		return 0, wantTime
	}
	fraction, rest, ok := parseFraction(b[20:])
	if !ok {
		return 0, wantFraction
	}
	if len(rest) != 6 || rest[0] != ' ' {
		return 0, wantOffset
	}
	if rest = rest[1:]; !c.offsetKnown || !bytes.Equal(rest, c.offsetText[:]) {
		offset, ok := parseOffset(rest[0], rest[1:3], rest[3:5])
		if !ok {
			return 0, wantOffset
		}
		c.offset, c.offsetKnown = offset, true
		copy(c.offsetText[:], rest)
	}
	return instant(c.minute, c.offset, number(b[18:20]), fraction)
}

// parseISO reads yyyy-mm-ddThh:mm:ss[.fraction][offset]. b is at least as long
// as that without the optional parts.
func (c *clock) parseISO(b []byte) (int64, string) {
	if b[7] != b[4] || b[10] != 'T' && b[10] != 't' && b[10] != ' ' || b[13] != ':' || b[16] != ':' {
		return 0, wantTime
	}
	minute, refused := minuteStart(number(b[:4]), number(b[5:7]), number(b[8:10]), number(b[11:13]), number(b[14:16]))
	if refused != "" {
		return 0, refused
	}
	fraction, rest, ok := parseFraction(b[19:])
	if !ok {
		return 0, wantFraction
	}
	offset := int64(0)
	if len(rest) > 1 && rest[0] == ' ' {
		rest = rest[1:]
	}
	switch {
	case len(rest) == 0, len(rest) == 1 && (rest[0] == 'Z' || rest[0] == 'z'):
	case len(rest) == 5:
		offset, ok = parseOffset(rest[0], rest[1:3], rest[3:5])
	case len(rest) == 6 && rest[3] == ':':
		offset, ok = parseOffset(rest[0], rest[1:3], rest[4:6])
	default:
		ok = false
	}
	if !ok {
		return 0, wantOffset
	}
	return instant(minute, offset, number(b[17:19]), fraction)
}

// minuteStart validates a date and a time of day and returns the start of that
// minute in seconds since the epoch, as if the date were UTC. Arguments below 0
// stand for digits that were not.
func minuteStart(year, month, day, hour, minute int) (int64, string) {
	switch {
	case year < 0 || month < 0 || day < 0 || hour < 0 || minute < 0:
		return 0, wantDigits
	case year < minYear || year > maxYear:
		return 0, wantYear
	case month < 1 || month > 12:
		return 0, wantMonth
	case hour > 23:
		return 0, wantHour
	case minute > 59:
		return 0, wantMinute
	}
	t := time.Date(year, time.Month(month), day, hour, minute, 0, 0, time.UTC)
	if t.Day() != day {
		return 0, wantDay
	}
	return t.Unix(), ""
}

// instant adds up the parts of a time. A leap second is the first second of the
// next day, so it is accepted where that day begins, in UTC.
func instant(minute, offset int64, second int, fraction int64) (int64, string) {
	seconds := minute - offset + int64(second)
	switch {
	case second < 0:
		return 0, wantDigits
	case second > 60:
		return 0, wantSecond
	case second == 60 && seconds%86400 != 0:
		return 0, wantLeap
	}
	return seconds*1e9 + fraction, ""
}

// parseFraction reads an optional decimal point with digits and returns
// nanoseconds and what follows.
func parseFraction(b []byte) (ns int64, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '.' && b[0] != ',' {
		return 0, b, true
	}
	i, scale := 1, int64(1e8)
	for ; i < len(b) && isDigit(b[i]); i++ {
		ns += int64(b[i]-'0') * scale
		scale /= 10
	}
	return ns, b[i:], i > 1
}

// parseOffset returns the seconds east of UTC of a time zone.
func parseOffset(sign byte, hours, minutes []byte) (int64, bool) {
	h, m := number(hours), number(minutes)
	offset := int64(h)*3600 + int64(m)*60
	if h < 0 || m < 0 || m > 59 || offset > maxOffset {
		return 0, false
	}
	switch sign {
	case '+':
		return offset, true
	case '-':
		return -offset, true
	}
	return 0, false
}

// parseEpoch reads a decimal number, with an exponent if need be, of seconds,
// milliseconds, microseconds or nanoseconds since the epoch. Digits below one
// nanosecond are dropped.
func parseEpoch(b []byte) (int64, string) {
	power := 0
	if i := bytes.IndexAny(b, "eE"); i >= 0 {
		n, err := strconv.Atoi(string(b[i+1:]))
		if errors.Is(err, strconv.ErrSyntax) {
			return 0, wantTime
		}
		b, power = b[:i], min(max(n, -2*maxLine), 2*maxLine) // beyond it makes no difference
	}
	whole, fraction, point := bytes.Cut(b, []byte("."))
	if !areDigits(whole) || point && !areDigits(fraction) {
		return 0, wantTime
	}
	significant := bytes.TrimLeft(whole, "0")
	exponent := power + len(significant)
	if exponent == power {
		digits := bytes.TrimLeft(fraction, "0")
		exponent -= len(fraction) - len(digits)
		fraction = digits
	}
	var digits [maxEpochDigits]byte
	n := copy(digits[:], significant)
	n += copy(digits[n:], fraction)
	return epochInstant(digits[:n], exponent)
}

// areDigits reports whether b is one digit or more.
func areDigits(b []byte) bool {
	for _, c := range b {
		if !isDigit(c) {
			return false
		}
	}
	return len(b) > 0
}

// epochInstant returns the time that 0.digits times 10 to the power of exponent
// stands for. The exponent is the number of digits before the decimal point,
// which tells the unit.
func epochInstant(digits []byte, exponent int) (int64, string) {
	if len(digits) == 0 || exponent < 9 || exponent > 19 {
		return 0, wantEpoch
	}
	shift := 9 // from seconds to nanoseconds
	switch {
	case exponent > 17:
		shift = 0
	case exponent > 14:
		shift = 3
	case exponent > 11:
		shift = 6
	}
	// Before this instant every value fits into an int64; the years end there.
	if exponent+shift > 19 {
		return 0, wantEpoch
	}
	var ns uint64
	for d := range exponent + shift {
		ns *= 10
		if d < len(digits) {
			ns += uint64(digits[d] - '0')
		}
	}
	if ns >= endOfYears {
		return 0, wantEpoch
	}
	return int64(ns), ""
}

const (
	// maxEpochDigits is the number of digits of the largest time in nanoseconds.
	maxEpochDigits = 19

	// endOfYears is the start of maxYear+1 in nanoseconds since the epoch.
	endOfYears = 9_214_646_400 * 1_000_000_000
)

// number returns the value of at most five digits, or -1.
func number(b []byte) int {
	n := 0
	for _, c := range b {
		if !isDigit(c) {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// monthNumber returns 1 to 12 for the English abbreviation of a month, or 0.
func monthNumber(a, b, c byte) int {
	if i := bytes.Index(monthNames, []byte{a, b, c}); i >= 0 && i%3 == 0 {
		return i/3 + 1
	}
	return 0
}

var monthNames = []byte("JanFebMarAprMayJunJulAugSepOctNovDec")
