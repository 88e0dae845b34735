package respapi

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/cmd/weir/internal/front/holds"
)

// mostWait is how long a client may be ready to wait.
const mostWait = 24 * time.Hour

// asked is what a command asks.
type asked struct {
	policy, key  []byte
	cost         int64
	afterwards   bool
	wait, expiry time.Duration
}

// options are what a command has besides the cost.
type options struct {
	wait, expiry, charge bool
	needsCost            bool
	usage                string
}

var (
	takeOptions    = &options{wait: true, charge: true, usage: "CHARGE before|afterwards or WAIT milliseconds, each once"}
	peekOptions    = &options{usage: "nothing after the cost"}
	allOptions     = &options{needsCost: true}
	reserveOptions = &options{
		wait: true, expiry: true, needsCost: true, usage: "EXPIRE milliseconds or WAIT milliseconds, each once",
	}
)

// read reads the cost and the options of a command, and checks what it names. It returns the error, or "".
func (p *policyCommands) read(a *asked, rest [][]byte, o *options) (wrong string) {
	if len(rest) > 0 && (o.needsCost || !equalFold(rest[0], "wait") && !equalFold(rest[0], "charge")) {
		n, ok := parseInt(rest[0])
		if !ok || n < 0 || n > algo.MaxPermits {
			return "ERR cost is " + excerpt(rest[0]) + ": must be a whole number from 0 to 1000000000000000"
		}
		a.cost, rest = n, rest[1:]
	}
	if wrong = a.readOptions(rest, o); wrong != "" {
		return wrong
	}
	switch ms := milliseconds(a.wait); {
	case a.wait > 0 && a.afterwards:
		return fmt.Sprintf("ERR WAIT is %d: must be 0 or not there with CHARGE afterwards, as what was spent does not wait", ms)
	case a.wait > 0 && a.cost == 0:
		return fmt.Sprintf("ERR WAIT is %d: must be 0 or not there with a cost of 0, which takes nothing", ms)
	}
	return p.named(a.policy, a.key)
}

// readOptions reads the options of a command. It returns the error, or "".
func (a *asked) readOptions(rest [][]byte, o *options) (wrong string) {
	waits, expires, charges := false, false, false
	for ; len(rest) >= 2; rest = rest[2:] {
		switch {
		case o.wait && !waits && equalFold(rest[0], "wait"):
			waits = true
			a.wait, wrong = readMilliseconds("WAIT", rest[1], 0, mostWait)
		case o.charge && !charges && equalFold(rest[0], "charge"):
			charges = true
			a.afterwards, wrong = readCharge(rest[1])
		case o.expiry && !expires && equalFold(rest[0], "expire"):
			expires = true
			a.expiry, wrong = readMilliseconds("EXPIRE", rest[1], holds.LeastExpiry, holds.MostExpiry)
		default:
			wrong = syntaxError(rest[0], o)
		}
		if wrong != "" {
			return wrong
		}
	}
	if len(rest) > 0 {
		return syntaxError(rest[0], o)
	}
	return ""
}

// readCharge reads when a cost is charged, and reports whether it has been spent already.
func readCharge(text []byte) (afterwards bool, wrong string) {
	switch {
	case equalFold(text, "afterwards"):
		return true, ""
	case equalFold(text, "before"):
		return false, ""
	}
	return false, "ERR CHARGE is " + excerpt(text) + ": must be before or afterwards"
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

// named checks a policy and a key. It returns the error, or "".
func (p *policyCommands) named(policy, key []byte) (wrong string) {
	switch {
	case !p.limits.Has(string(policy)):
		return p.noPolicy(policy)
	case len(key) == 0 && !p.limits.MayLackKey(string(policy)):
		return "ERR key has 0 bytes: must not be empty"
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
