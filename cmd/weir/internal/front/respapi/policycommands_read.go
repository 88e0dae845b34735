package respapi

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/cmd/weir/internal/holds"
)

const (
	mostKey = 1024
	// mostWait is how long a client may be ready to wait.
	mostWait = 24 * time.Hour
)

// asked is what a command asks.
type asked struct {
	policy, key  []byte
	cost         int64
	wait, expiry time.Duration
}

// options are what a command has besides the cost.
type options struct {
	wait, expiry bool
	needsCost    bool
	usage        string
}

var (
	takeOptions    = &options{wait: true, usage: "WAIT milliseconds, once"}
	peekOptions    = &options{usage: "nothing after the cost"}
	allOptions     = &options{needsCost: true}
	reserveOptions = &options{
		wait: true, expiry: true, needsCost: true, usage: "EXPIRE milliseconds or WAIT milliseconds, each once",
	}
)

// read reads the cost and the options of a command, and checks what it names. It answers the error, or "".
func (p *policyCommands) read(a *asked, rest [][]byte, o *options) (wrong string) {
	if len(rest) > 0 && (o.needsCost || !equalFold(rest[0], "wait")) {
		n, ok := parseInt(rest[0])
		if !ok || n < 0 || n > algo.MaxPermits {
			return "ERR cost is " + excerpt(rest[0]) + ": must be a whole number from 0 to 1000000000000000"
		}
		a.cost, rest = n, rest[1:]
	}
	waits, expires := false, false
	for ; len(rest) >= 2; rest = rest[2:] {
		switch {
		case o.wait && !waits && equalFold(rest[0], "wait"):
			waits = true
			if a.wait, wrong = readMilliseconds("WAIT", rest[1], 0, mostWait); wrong != "" {
				return wrong
			}
		case o.expiry && !expires && equalFold(rest[0], "expire"):
			expires = true
			if a.expiry, wrong = readMilliseconds("EXPIRE", rest[1], holds.LeastExpiry, holds.MostExpiry); wrong != "" {
				return wrong
			}
		default:
			return syntaxError(rest[0], o)
		}
	}
	if len(rest) > 0 {
		return syntaxError(rest[0], o)
	}
	if a.cost == 0 && a.wait > 0 {
		return fmt.Sprintf("ERR WAIT is %d: must be 0 or not there with a cost of 0, which takes nothing", milliseconds(a.wait))
	}
	return p.named(a.policy, a.key)
}

func syntaxError(at []byte, o *options) string {
	return "ERR syntax error at '" + excerpt(at) + "': there can be " + o.usage
}

// readMilliseconds reads the number of an option.
func readMilliseconds(name string, text []byte, least, most time.Duration) (d time.Duration, wrong string) {
	n, ok := parseInt(text)
	if !ok || n < int64(least/time.Millisecond) || n > int64(most/time.Millisecond) {
		return 0, fmt.Sprintf("ERR %s is %s: must be a whole number of milliseconds from %d to %d",
			name, excerpt(text), least/time.Millisecond, most/time.Millisecond)
	}
	return time.Duration(n) * time.Millisecond, ""
}

// named checks a policy and a key. It answers the error, or "".
func (p *policyCommands) named(policy, key []byte) (wrong string) {
	switch {
	case !p.limits.Has(string(policy)):
		return p.noPolicy(policy)
	case len(key) > mostKey, len(key) == 0 && !p.limits.MayLackKey(string(policy)):
		return fmt.Sprintf("ERR key has %d bytes: must be from 1 to %d", len(key), mostKey)
	}
	return ""
}

// mostNamed is how many policies an error lists.
const mostNamed = 20

func (p *policyCommands) noPolicy(name []byte) string {
	set := p.limits.Engine().Set()
	var b strings.Builder
	b.WriteString("NOPOLICY there is no policy " + quoted(name))
	for i := range set.Policies {
		switch i {
		case 0:
			b.WriteString(": must be one of: ")
		case mostNamed:
			fmt.Fprintf(&b, ", and %d more", len(set.Policies)-i)
			return b.String()
		default:
			b.WriteString(", ")
		}
		b.WriteString(set.Policies[i].Name)
	}
	return b.String()
}
