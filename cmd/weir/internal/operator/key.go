package operator

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/internal/inwords"
	"github.com/weirhq/weir/policy"
)

// Key is the state of a key of a policy. Keys are spelled as [SpellKey] does, here and wherever else the admin API tells or takes
// them.
type Key struct {
	Policy string `json:"policy"`
	Key    string `json:"key"`
	// Named reports whether the key is known by name. Otherwise it is "" and ID stands for it.
	Named bool   `json:"named"`
	ID    string `json:"id"`
	// Mode is that of the policy: "enforce", "shadow", "tag" or "off".
	Mode string `json:"mode,omitempty"`
	// Limits are those of the policy; in a list of keys, the one under the most pressure alone.
	Limits []KeyLimit `json:"limits"`
	// LockedFor is for how long it is still locked out, 0 if it is not. RecentRefusals is how many refusals count towards a
	// lockout.
	LockedFor      float64   `json:"locked_for"`
	RecentRefusals int       `json:"recent_refusals"`
	Override       *Override `json:"override,omitempty"`
}

// KeyLimit is what is known of a key of a limit.
type KeyLimit struct {
	Name       string  `json:"name"`
	Holds      string  `json:"holds"`
	Tracked    bool    `json:"tracked"`
	Allowed    bool    `json:"allowed"` // whether one permit would be allowed now
	Reason     string  `json:"reason"`
	Limit      int64   `json:"limit"`
	Remaining  int64   `json:"remaining"`
	RetryAfter float64 `json:"retry_after"`
	ResetAfter float64 `json:"reset_after"`
	Queued     int64   `json:"queued"`
	Waiters    int     `json:"waiters"`
	Refused    uint64  `json:"refused"`
}

// Lockout is a key that is locked out.
type Lockout struct {
	Policy string  `json:"policy"`
	Key    string  `json:"key"`
	For    float64 `json:"for"`
}

// Change names what an action is about.
type Change struct {
	Policy string `json:"policy,omitempty"`
	Key    string `json:"key"`
	Reason string `json:"reason,omitempty"` // at most 1024 bytes
}

// Override is a limit that applies to one key for a while, as it is asked for and as it is listed.
type Override struct {
	Policy string `json:"policy"`
	Key    string `json:"key"`
	// Limits are those that hold instead, by the name of the limit, such as "100/s, burst 200" or "100/s"; where the policy has
	// one limit, the name may be "". Exclusive with Unlimited.
	Limits    map[string]string `json:"limits,omitempty"`
	Unlimited bool              `json:"unlimited,omitempty"`
	// For is for how many seconds: from 1 to 316224000. In a list it is what is left.
	For    float64 `json:"for"`
	Reason string  `json:"reason,omitempty"`
	// By is who made it, and Since when. The server sets them.
	By    string    `json:"by,omitempty"   set:"server"`
	Since time.Time `json:"since,omitzero" set:"server"`
}

// The servers that a change is made in.
const (
	ThisReplica = "this one only"
	AllReplicas = "all"
)

// Changed is the answer to an action.
type Changed struct {
	// Changed reports whether there was something to change: a lockout to end, for instance.
	Changed bool `json:"changed"`
	// Replicas tells in which servers it was changed: [ThisReplica], or [AllReplicas] where what was changed is kept for all of
	// them. It is "" of a reload.
	Replicas string `json:"replicas,omitempty"`
	// Version and Changes are those of a reload.
	Version uint64 `json:"version,omitempty"`
	Changes int    `json:"changes,omitempty"`
}

// KeyName is the name of a key, or what stands for it.
func KeyName(k *Key) string {
	if !k.Named && k.Key == "" && k.ID != "" {
		return "#" + terminal.Printable(k.ID)
	}
	return ShownKey(k.Key)
}

// WriteKey writes the state of a key.
func WriteKey(w io.Writer, out terminal.Output, k *Key) {
	fmt.Fprintf(w, "%s of %s\n", out.Bold("key "+quoted(k.Key)), out.Bold("policy "+terminal.Printable(k.Policy)))
	if mode := refusesNothing(k); mode != "" {
		fmt.Fprintf(w, "  %s\n", mode)
	}
	if k.LockedFor != 0 {
		fmt.Fprintf(w, "  %s\n", out.Red("locked out for another "+in(k.LockedFor, time.Now())))
	} else if k.RecentRefusals > 0 {
		fmt.Fprintf(w, "  refused %s, which counts towards a lockout\n", times(k.RecentRefusals))
	}
	if o := k.Override; o != nil {
		fmt.Fprintf(w, "  overridden: %s, for another %s%s\n", OverrideText(o), in(o.For, time.Now()), by(o))
	}
	for i := range k.Limits {
		writeLimit(w, out, &k.Limits[i], "  ", k.LockedFor)
	}
}

// refusesNothing says that the policy of a key only counts what it would refuse, "" if it refuses that.
func refusesNothing(k *Key) string {
	if k.Mode == "" || k.Mode == policy.ModeEnforce.String() {
		return ""
	}
	return "the mode of the policy is " + terminal.Printable(k.Mode) + ": it refuses nothing"
}

// Unseen reports whether nothing is kept of a key: no request has used it, or not for long.
func Unseen(k *Key) bool {
	return k.LockedFor == 0 && k.Override == nil &&
		!slices.ContainsFunc(k.Limits, func(l KeyLimit) bool { return l.Tracked })
}

// writeKeyForm writes of what the keys of a policy are made, for operators that asked for a key of which nothing is kept: they
// may have spelled it otherwise than weir does.
func writeKeyForm(w io.Writer, p *Policy) {
	if p.Key == "" {
		fmt.Fprintf(w, "unless it is asked for by name, policy %s has one state for all requests, with the key \"\"\n",
			terminal.Printable(p.Name))
		return
	}
	fmt.Fprintf(w, "keys of policy %s are %s, written as \"weir admin keys\" and \"weir admin refusals\" show them\n",
		terminal.Printable(p.Name), terminal.Printable(p.Key))
}

// writeKeysKept writes which keys of a policy are listed, where it is not all that are in use.
func writeKeysKept(w io.Writer, p *Policy) {
	if kept := Kept(p); kept != keptLocal {
		fmt.Fprintf(w, "policy %s is not kept by this process alone (%s): those that it has refused are listed, "+
			"\"weir admin key\" shows any other\n",
			terminal.Printable(p.Name), terminal.Printable(kept))
	}
}

// times is "once", or how many times.
func times[T int | uint64](n T) string {
	if n == 1 {
		return "once"
	}
	return terminal.Number(n) + " times"
}

// quoted is a key in quotes, with escapes for what does not print.
func quoted(key string) string {
	if key == "" {
		return "(none)"
	}
	if plain := `"` + key + `"`; !strings.Contains(key, `"`) && terminal.Printable(plain) == plain {
		return plain // as tables have it, though there are backslashes in it
	}
	return strconv.Quote(key)
}

func by(o *Override) string {
	text := ""
	if o.By != "" {
		text = ", by " + terminal.Printable(o.By)
	}
	if o.Reason != "" {
		text += ": " + terminal.Printable(o.Reason)
	}
	return text
}

// Unlimited is what a limit is called that lets pass whatever is asked for.
const Unlimited = "unlimited"

// OverrideText is what an override says instead of the limits.
func OverrideText(o *Override) string {
	if o.Unlimited {
		return Unlimited
	}
	all := make([]string, 0, len(o.Limits))
	for name, holds := range o.Limits {
		if name != "" {
			holds = name + " = " + holds
		}
		all = append(all, terminal.Printable(holds))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// writeLimit writes the state of a limit of a key that is locked out for so many seconds, each line after indent.
func writeLimit(w io.Writer, out terminal.Output, l *KeyLimit, indent string, locked float64) {
	name := limitWord
	if l.Name != "" {
		name += " " + terminal.Printable(l.Name)
	}
	fmt.Fprintf(w, "%s%s: %s\n", indent, out.Bold(name), terminal.Printable(l.Holds))
	switch {
	case l.Holds == Unlimited:
	case !l.Tracked:
		fmt.Fprintf(w, "%s  nothing is kept of this key\n", indent)
	default:
		back := ""
		if l.ResetAfter != 0 {
			back = ", all are back in " + in(l.ResetAfter, time.Now())
		}
		fmt.Fprintf(w, "%s  %s of %s remaining%s\n", indent, terminal.Number(l.Remaining), terminal.Number(l.Limit), back)
	}
	switch {
	case l.Allowed && !l.Tracked && l.Holds != Unlimited:
	case l.Allowed && locked != 0:
		fmt.Fprintf(w, "%s  one more would be allowed now, were it not locked out\n", indent)
	case l.Allowed:
		fmt.Fprintf(w, "%s  one more would be allowed now\n", indent)
	default:
		reason, after := l.Reason, l.RetryAfter
		if locked != 0 {
			reason = weir.ReasonHardLockout.String()
			if after >= 0 {
				after = max(after, locked)
			}
		}
		why := retryText(reason, after, time.Now())
		fmt.Fprintf(w, "%s  one more would be %s now: %s\n", indent, out.Red("refused"), why)
	}
	if l.Waiters > 0 || l.Queued > 0 {
		fmt.Fprintf(w, "%s  %s for %s\n", indent, terminal.Plural(l.Waiters, "waits", "wait"),
			terminal.Plural(l.Queued, "permit", "permits"))
	}
	if l.Refused > 0 {
		fmt.Fprintf(w, "%s  refused %s\n", indent, times(l.Refused))
	}
}

// in is a time in seconds as people read it, with the moment if it is far from now.
func in(seconds float64, now time.Time) string { return inwords.After(Duration(seconds), now) }

func retryText(reason string, after float64, now time.Time) string {
	reason = terminal.Printable(reason)
	switch {
	case after < 0:
		return reason + ", and no wait helps"
	case after == 0:
		return reason
	default:
		return reason + ", retry after " + in(after, now)
	}
}

// keys is a table of keys, each with its limit under the most pressure.
var keys = list[Key]{
	none:    "no keys",
	head:    []string{"remaining", "of", "refused", "queued", "retry after", "locked out", limitWord, "override", keyWord},
	numbers: 6,
	row: func(k *Key) []string {
		row := []string{"-", "-", "-", "-", "-", "-", "-", "-", KeyName(k)}
		if len(k.Limits) > 0 {
			l := &k.Limits[0]
			row[2], row[3] = terminal.Number(l.Refused), terminal.Number(l.Queued)
			if l.Holds != Unlimited {
				row[0], row[1] = terminal.Number(l.Remaining), terminal.Number(l.Limit)
			}
			if !l.Allowed && l.RetryAfter != 0 {
				row[4] = Seconds(l.RetryAfter)
			}
			row[6] = strings.TrimSpace(l.Name + " " + l.Holds)
		}
		if k.LockedFor != 0 {
			row[5] = Seconds(k.LockedFor)
		}
		if k.Override != nil {
			row[7] = OverrideText(k.Override)
		}
		return row
	},
}

// lockouts is a table of keys that are locked out.
var lockouts = list[Lockout]{
	none:    "no key that is known by name is locked out by this server",
	head:    []string{"for another", policyWord, keyWord},
	numbers: 1,
	row:     func(l *Lockout) []string { return []string{Seconds(l.For), l.Policy, ShownKey(l.Key)} },
}

// overrides is a table of overrides.
var overrides = list[Override]{
	none:    "no key is overridden",
	head:    []string{"for another", policyWord, keyWord, "instead", "by", sinceHead, "why"},
	numbers: 1,
	row: func(o *Override) []string {
		return []string{Seconds(o.For), o.Policy, ShownKey(o.Key), OverrideText(o), o.By, Time(o.Since), o.Reason}
	},
}

// allTaken reports whether requests have all permits of a concurrency limit, and it is not known for how long.
func allTaken(l KeyLimit) bool { return !l.Allowed && l.RetryAfter == 0 }

// soon is how many seconds to come back after are not worth a word: an override with a higher rate has let it in by then.
const soon = 1

// StillShut says that a key is locked out, "" if it is not. No other change than unlock ends that.
func StillShut(k *Key) string {
	if k.LockedFor == 0 {
		return ""
	}
	return "it is still locked out for another " + in(k.LockedFor, time.Now())
}

// StillRefused says which limit refuses the next request of a key that is not locked out, and for how long, "" if none does or
// not for long: what has let the key in need not be enough.
func StillRefused(k *Key) string {
	var worst *KeyLimit
	for i := range k.Limits {
		l := &k.Limits[i]
		if l.Allowed || l.RetryAfter >= 0 && l.RetryAfter < soon {
			continue
		}
		if worst == nil || worst.RetryAfter >= 0 && (l.RetryAfter < 0 || l.RetryAfter > worst.RetryAfter) {
			worst = l
		}
	}
	if worst == nil || k.LockedFor != 0 || refusesNothing(k) != "" {
		return ""
	}
	name := ""
	if worst.Name != "" {
		name = " by limit " + terminal.Printable(worst.Name)
	}
	return "one more would be refused now" + name + ": " + retryText(worst.Reason, worst.RetryAfter, time.Now())
}
