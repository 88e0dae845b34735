package load

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/internal/limits"
)

// perSecond returns a flag value that is a number of requests a second, 0 if it is not given.
func perSecond(p *float64) *flags.Value {
	show := func(rate float64) string {
		if rate == 0 {
			return ""
		}
		return decimal(rate) + "/s"
	}
	return flags.Of("requests/period", p, show, func(s string) (float64, error) {
		const least, most = 0.01, 10_000_000
		rate, err := weir.ParseRate(s)
		if err != nil || limits.PerSecond(rate) < least || limits.PerSecond(rate) > most {
			return 0, fmt.Errorf("must be requests/period such as 50000/s or 600/min, from %v/s to %d/s", least, most)
		}
		return limits.PerSecond(rate), nil
	})
}

func decimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// exponent returns a flag value that is the exponent of a Zipf distribution.
func exponent(p *float64) *flags.Value {
	return flags.Of("s", p, decimal, func(s string) (float64, error) {
		const least, most = 0.01, 10
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !(f >= least && f <= most) { // NaN is neither
			return 0, fmt.Errorf("must be a number such as 0.99 or 1.2, from %v to %d", least, most)
		}
		return f, nil
	})
}

// server returns a flag value that is where to connect to.
func server(p *string) *flags.Value {
	return flags.TextOf(flags.Address, p, func(s string) (string, error) {
		host, port, err := net.SplitHostPort(s)
		n, portErr := strconv.ParseUint(port, 10, 16)
		if err != nil || portErr != nil || host == "" || n == 0 || strings.ContainsAny(host, " /\t\r\n\"@") {
			return "", errors.New("must be host:port such as 127.0.0.1:7070, weir.example.com:443 or [::1]:7070, " +
				"with a port from 1 to 65535")
		}
		return net.JoinHostPort(host, port), nil
	})
}

// throttle are the limits that CL.THROTTLE is given.
type throttle struct{ maxBurst, count, period int64 }

func (l throttle) String() string { return fmt.Sprintf("%d/%d/%d", l.maxBurst, l.count, l.period) }

const (
	mostCount  = 1_000_000_000_000
	mostPeriod = 100_000_000
)

func parseThrottle(s string) (throttle, error) {
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
		return throttle{}, errors.New("must be max_burst/count/period such as 15/30/60, which is 16 at once and 30 in 60 " +
			"seconds: max_burst from 0 and count from 1 to 10^12, period from 1 to 10^8")
	}
	return throttle{numbers[0], numbers[1], numbers[2]}, nil
}

// word is text of a bounded length which prints.
type word struct {
	shortest, longest int
	noQuotes          bool
}

// name is a word that names something in a server.
var name = word{shortest: 1, longest: longestName}

func (w word) parse(s string) (string, error) {
	ok := len(s) >= w.shortest && len(s) <= w.longest
	for _, c := range []byte(s) {
		ok = ok && c >= ' ' && c != 0x7f && (!w.noQuotes || c <= '~' && c != '"' && c != '\\')
	}
	if ok {
		return s, nil
	}
	what := "characters that print"
	if w.noQuotes {
		what = "characters of ASCII that print, without \" and \\"
	}
	return "", fmt.Errorf("must be %d to %d %s", w.shortest, w.longest, what)
}

// command is one of Redis.
type command struct {
	text string
	args []string
}

func (c command) String() string { return c.text }

const longestCommand = 4096

func parseCommand(s string) (command, error) {
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
		return command{}, fmt.Errorf("%w: must be a command such as 'INCR {key}' or 'EVALSHA d1... 1 {key} 10', "+
			"in which {key} is the key", err)
	}
	return command{s, args}, nil
}

// descriptors are those of a RateLimitRequest.
type descriptors struct {
	texts []string
	list  [][]rlsEntry
}

// rlsEntry is an entry of a descriptor.
type rlsEntry struct{ name, value string }

func (d descriptors) String() string { return strings.Join(d.texts, " ") }

const (
	mostDescriptors   = 16
	mostEntries       = 16
	longestDescriptor = 1024
)

// with adds a descriptor.
func (d descriptors) with(s string) (descriptors, error) {
	var entries []rlsEntry
	ok := s != "" && len(s) <= longestDescriptor
	for entry := range strings.SplitSeq(s, ",") {
		name, value, _ := strings.Cut(entry, "=")
		ok = ok && name != "" && strings.Count(value, keyMark) <= 1 && !strings.Contains(name, keyMark)
		entries = append(entries, rlsEntry{name, value})
	}
	if !ok || len(entries) > mostEntries {
		return d, fmt.Errorf("must be key=value, or key=value,key=value up to %d of them and %d bytes, "+
			"with {key} in a value for the key",
			mostEntries, longestDescriptor)
	}
	if len(d.list) == mostDescriptors {
		return d, fmt.Errorf("must be given at most %d times", mostDescriptors)
	}
	return descriptors{append(d.texts, s), append(d.list, entries)}, nil
}

// flag returns a flag value that may be repeated. The first one takes the place of the default.
func (d *descriptors) flag() *flags.Value {
	given := false
	return flags.Of("key=value,...", d, descriptors.String, func(s string) (descriptors, error) {
		before := *d
		if !given {
			before = descriptors{}
		}
		all, err := before.with(s)
		given = given || err == nil
		return all, err
	})
}
