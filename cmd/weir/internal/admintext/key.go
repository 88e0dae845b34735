package admintext

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/admin"
	"github.com/weirhq/weir/cmd/weir/internal/table"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/internal/inwords"
)

// KeyName is the name of a key, or what stands for it.
func KeyName(k *admin.Key) string {
	if !k.Named && k.Key == "" && k.ID != "" {
		return "#" + table.Printable(k.ID)
	}
	return table.Key(k.Key)
}

// Key writes the state of a key.
func Key(w io.Writer, out terminal.Output, k *admin.Key) {
	fmt.Fprintf(w, "%s of %s\n", out.Bold("key "+quoted(k.Key)), out.Bold("policy "+table.Printable(k.Policy)))
	if k.LockedFor != 0 {
		fmt.Fprintf(w, "  %s\n", out.Red("locked out for another "+in(k.LockedFor, time.Now())))
	} else if k.RecentRefusals > 0 {
		fmt.Fprintf(w, "  refused %s, which counts towards a lockout\n", times(k.RecentRefusals))
	}
	if o := k.Override; o != nil {
		fmt.Fprintf(w, "  overridden: %s, for another %s%s\n", Override(o), in(o.For, time.Now()), by(o))
	}
	for i := range k.Limits {
		limit(w, out, &k.Limits[i], "  ", k.LockedFor != 0)
	}
}

// Unseen reports whether nothing is kept of a key: no request has used it, or not for long.
func Unseen(k *admin.Key) bool {
	return k.LockedFor == 0 && k.Override == nil &&
		!slices.ContainsFunc(k.Limits, func(l admin.KeyLimit) bool { return l.Tracked })
}

// KeyForm writes of what the keys of a policy are made, for those who have asked for one of which nothing is kept: it may
// be spelled otherwise than weir does.
func KeyForm(w io.Writer, p *admin.Policy) {
	if p.Key == "" {
		fmt.Fprintf(w, "unless it is asked for by name, policy %s has one state for all requests, with the key \"\"\n",
			table.Printable(p.Name))
		return
	}
	fmt.Fprintf(w, "keys of policy %s are %s, written as \"weir admin keys\" and \"weir admin refusals\" show them\n",
		table.Printable(p.Name), table.Printable(p.Key))
}

// KeysKept writes which keys of a policy are listed, where it is not all that are in use.
func KeysKept(w io.Writer, p *admin.Policy) {
	if kept := Kept(p); kept != "local" {
		fmt.Fprintf(w, "policy %s is not kept by this process alone (%s): those that it has refused are listed, "+
			"\"weir admin key\" shows any other\n",
			table.Printable(p.Name), table.Printable(kept))
	}
}

// times is "once", or how many times.
func times[T int | uint64](n T) string {
	if n == 1 {
		return "once"
	}
	return table.Number(n) + " times"
}

// quoted is a key in quotes, with escapes for what does not print.
func quoted(key string) string {
	if key == "" {
		return "(none)"
	}
	if plain := `"` + key + `"`; !strings.Contains(key, `"`) && table.Printable(plain) == plain {
		return plain // as tables have it, though there are backslashes in it
	}
	return strconv.Quote(key)
}

func by(o *admin.Override) string {
	text := ""
	if o.By != "" {
		text = ", by " + table.Printable(o.By)
	}
	if o.Reason != "" {
		text += ": " + table.Printable(o.Reason)
	}
	return text
}

// Unlimited is what a limit is called that lets pass whatever is asked for.
const Unlimited = "unlimited"

// Override is what an override says instead of the limits.
func Override(o *admin.Override) string {
	if o.Unlimited {
		return Unlimited
	}
	all := make([]string, 0, len(o.Limits))
	for name, holds := range o.Limits {
		if name != "" {
			holds = name + " = " + holds
		}
		all = append(all, table.Printable(holds))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// limit writes the state of a key of a limit, each line after indent. It leaves out lockouts.
func limit(w io.Writer, out terminal.Output, l *admin.KeyLimit, indent string, locked bool) {
	name := "limit"
	if l.Name != "" {
		name += " " + table.Printable(l.Name)
	}
	fmt.Fprintf(w, "%s%s: %s\n", indent, out.Bold(name), table.Printable(l.Holds))
	switch {
	case l.Holds == Unlimited:
	case !l.Tracked:
		fmt.Fprintf(w, "%s  nothing is kept of this key\n", indent)
	default:
		back := ""
		if l.ResetAfter != 0 {
			back = ", all are back in " + in(l.ResetAfter, time.Now())
		}
		fmt.Fprintf(w, "%s  %s of %s remaining%s\n", indent, table.Number(l.Remaining), table.Number(l.Limit), back)
	}
	switch {
	case l.Allowed && !l.Tracked && l.Holds != Unlimited:
	case l.Allowed && locked:
		fmt.Fprintf(w, "%s  one more would be allowed now, were it not locked out\n", indent)
	case l.Allowed:
		fmt.Fprintf(w, "%s  one more would be allowed now\n", indent)
	default:
		why := retry(l.Reason, l.RetryAfter, time.Now())
		fmt.Fprintf(w, "%s  one more would be %s now: %s\n", indent, out.Red("refused"), why)
	}
	if l.Waiters > 0 || l.Queued > 0 {
		fmt.Fprintf(w, "%s  %s wait for %s permits\n", indent, table.Number(l.Waiters), table.Number(l.Queued))
	}
	if l.Refused > 0 {
		fmt.Fprintf(w, "%s  refused %s\n", indent, times(l.Refused))
	}
}

// in is a time in seconds as people read it, with the moment if it is far from now.
func in(seconds float64, now time.Time) string { return inwords.After(table.Duration(seconds), now) }

func retry(reason string, after float64, now time.Time) string {
	reason = table.Printable(reason)
	switch {
	case after < 0:
		return reason + ", and no wait helps"
	case after == 0:
		return reason
	default:
		return reason + ", retry after " + in(after, now)
	}
}

// Keys writes a table of keys, each with its limit under the most pressure.
func Keys(w io.Writer, out terminal.Output, keys []admin.Key) {
	if len(keys) == 0 {
		fmt.Fprintln(w, "no keys")
		return
	}
	rows := [][]string{{"remaining", "of", "refused", "queued", "retry after", "locked out", "limit", "override", keyHead}}
	for i := range keys {
		k := &keys[i]
		row := []string{"-", "-", "-", "-", "-", "-", "-", "-", KeyName(k)}
		if len(k.Limits) > 0 {
			l := &k.Limits[0]
			row[2], row[3] = table.Number(l.Refused), table.Number(l.Queued)
			if l.Holds != Unlimited {
				row[0], row[1] = table.Number(l.Remaining), table.Number(l.Limit)
			}
			if !l.Allowed {
				row[4] = table.Seconds(l.RetryAfter)
			}
			row[6] = strings.TrimSpace(l.Name + " " + l.Holds)
		}
		if k.LockedFor != 0 {
			row[5] = table.Seconds(k.LockedFor)
		}
		if k.Override != nil {
			row[7] = Override(k.Override)
		}
		rows = append(rows, row)
	}
	const numbers = 6
	table.Write(w, out, rows, numbers)
}

// Lockouts writes a table of keys that are locked out.
func Lockouts(w io.Writer, out terminal.Output, all []admin.Lockout) {
	if len(all) == 0 {
		fmt.Fprintln(w, "no key that is known by name is locked out by this server")
		return
	}
	rows := [][]string{{"for another", policyHead, keyHead}}
	for i := range all {
		rows = append(rows, []string{table.Seconds(all[i].For), all[i].Policy, table.Key(all[i].Key)})
	}
	table.Write(w, out, rows, 1)
}

// Overrides writes a table of overrides.
func Overrides(w io.Writer, out terminal.Output, all []admin.Override) {
	if len(all) == 0 {
		fmt.Fprintln(w, "no key is overridden")
		return
	}
	rows := [][]string{{"for another", policyHead, keyHead, "instead", "by", "since", "why"}}
	for i := range all {
		o := &all[i]
		rows = append(rows, []string{
			table.Seconds(o.For), o.Policy, table.Key(o.Key), Override(o), o.By, table.Time(o.Since), o.Reason,
		})
	}
	table.Write(w, out, rows, 1)
}
