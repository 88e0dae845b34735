package load

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/limits"
)

// perSecond is a number of requests a second.
type perSecond float64

// String is the current value.
func (r *perSecond) String() string {
	if *r == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(*r), 'f', -1, 64) + "/s"
}

const (
	leastRate = 0.01
	mostRate  = 10_000_000
)

// Set parses and stores s.
func (r *perSecond) Set(s string) error {
	rate, err := weir.ParseRate(s)
	if err != nil || limits.PerSecond(rate) < leastRate || limits.PerSecond(rate) > mostRate {
		return fmt.Errorf("must be requests/period such as 50000/s or 600/min, from %v/s to %d/s", leastRate, mostRate)
	}
	*r = perSecond(limits.PerSecond(rate))
	return nil
}

// Type is what help shows in place of a value.
func (*perSecond) Type() string { return "requests/period" }

// exponent is that of a Zipf distribution.
type exponent float64

// String is the current value.
func (e *exponent) String() string { return strconv.FormatFloat(float64(*e), 'f', -1, 64) }

const (
	leastExponent = 0.01
	mostExponent  = 10
)

// Set parses and stores s.
func (e *exponent) Set(s string) error {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f >= leastExponent && f <= mostExponent) { // NaN is neither
		return fmt.Errorf("must be a number such as 0.99 or 1.2, from %v to %d", leastExponent, mostExponent)
	}
	*e = exponent(f)
	return nil
}

// Type is what help shows in place of a value.
func (*exponent) Type() string { return "s" }

// server is where to connect to.
type server string

// String is the current value.
func (a *server) String() string { return string(*a) }

// Set stores s if it is a host and a port.
func (a *server) Set(s string) error {
	host, port, err := net.SplitHostPort(s)
	n, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil || host == "" || n == 0 || strings.ContainsAny(host, " /\t\r\n\"@") {
		return errors.New("must be host:port such as 127.0.0.1:7070, weir.example.com:443 or [::1]:7070, " +
			"with a port from 1 to 65535")
	}
	*a = server(net.JoinHostPort(host, port))
	return nil
}

// Type is what help shows in place of a value.
func (*server) Type() string { return "host:port" }

// throttle are the limits that CL.THROTTLE is given.
type throttle struct{ maxBurst, count, period int64 }

// String is the current value.
func (l *throttle) String() string { return fmt.Sprintf("%d/%d/%d", l.maxBurst, l.count, l.period) }

const (
	mostCount  = 1_000_000_000_000
	mostPeriod = 100_000_000
)

// Set parses and stores s.
func (l *throttle) Set(s string) error {
	parts := strings.Split(s, "/")
	const three = 3
	var numbers [three]int64
	ok := len(parts) == three
	for i := 0; ok && i < three; i++ {
		n, err := strconv.ParseInt(strings.ReplaceAll(parts[i], "_", ""), 10, 64)
		numbers[i] = n
		most := int64(mostCount)
		if i == three-1 {
			most = mostPeriod
		}
		ok = err == nil && n <= most && (n >= 1 || i == 0 && n == 0)
	}
	if !ok {
		return errors.New("must be max_burst/count/period such as 15/30/60, which is 16 at once and 30 in 60 seconds: " +
			"max_burst from 0 and count from 1 to 10^12, period from 1 to 10^8")
	}
	*l = throttle{numbers[0], numbers[1], numbers[2]}
	return nil
}

// Type is what help shows in place of a value.
func (*throttle) Type() string { return "max_burst/count/period" }

// word is the value of a flag that is text of a bounded length which prints.
type word struct {
	p        *string
	shortest int
	longest  int
	noQuotes bool
}

// String is the current value.
func (w *word) String() string {
	if w.p == nil {
		return ""
	}
	return *w.p
}

// Set stores s.
func (w *word) Set(s string) error {
	ok := len(s) >= w.shortest && len(s) <= w.longest
	for _, c := range []byte(s) {
		ok = ok && c >= ' ' && c != 0x7f && (!w.noQuotes || c <= '~' && c != '"' && c != '\\')
	}
	if !ok {
		what := "characters that print"
		if w.noQuotes {
			what = "characters of ASCII that print, without \" and \\"
		}
		return fmt.Errorf("must be %d to %d %s", w.shortest, w.longest, what)
	}
	*w.p = s
	return nil
}

// Type is what help shows in place of a value.
func (*word) Type() string { return "text" }

// command is one of Redis.
type command struct {
	text string
	args []string
}

// String is the current value.
func (c *command) String() string { return c.text }

const longestCommand = 4096

// Set parses and stores s.
func (c *command) Set(s string) error {
	args, err := commandWords(s)
	if err == nil && len(s) > longestCommand {
		err = fmt.Errorf("is longer than %d bytes", longestCommand)
	}
	for _, arg := range args {
		if strings.Count(arg, keyMark) > 1 {
			err = errors.New("has {key} twice in one argument")
		}
	}
	if err != nil {
		return fmt.Errorf("%w: must be a command such as 'INCR {key}' or 'EVALSHA d1... 1 {key} 10', "+
			"in which {key} is the key", err)
	}
	c.text, c.args = s, args
	return nil
}

// Type is what help shows in place of a value.
func (*command) Type() string { return "command" }

// descriptors are those of a RateLimitRequest.
type descriptors struct {
	texts []string
	list  [][]rlsEntry
	given bool
}

// String is the current value.
func (d *descriptors) String() string { return strings.Join(d.texts, " ") }

const (
	mostDescriptors   = 16
	mostEntries       = 16
	longestDescriptor = 1024
)

// Set parses s and adds it to those before, or takes the place of the default.
func (d *descriptors) Set(s string) error {
	var entries []rlsEntry
	ok := s != "" && len(s) <= longestDescriptor
	for entry := range strings.SplitSeq(s, ",") {
		name, value, _ := strings.Cut(entry, "=")
		ok = ok && name != "" && strings.Count(value, keyMark) <= 1 && !strings.Contains(name, keyMark)
		entries = append(entries, newRLSEntry(name, value))
	}
	if !ok || len(entries) > mostEntries {
		return fmt.Errorf("must be key=value, or key=value,key=value up to %d of them and %d bytes, "+
			"with {key} in a value for the key",
			mostEntries, longestDescriptor)
	}
	if !d.given {
		*d = descriptors{given: true}
	}
	if len(d.list) == mostDescriptors {
		return fmt.Errorf("must be given at most %d times", mostDescriptors)
	}
	d.texts, d.list = append(d.texts, s), append(d.list, entries)
	return nil
}

// Type is what help shows in place of a value.
func (*descriptors) Type() string { return "key=value,..." }
