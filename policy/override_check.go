package policy

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"
)

// checkOverride returns the limits of an override with names, or what is wrong with it.
func (p *livePolicy) checkOverride(o *Override) ([]Limit, error) {
	c := new(checker)
	if len(o.Key) > longestOverridden {
		c.refuse("Override.Key", fmt.Sprintf("%d bytes", len(o.Key)), "at most 8192 bytes")
	}
	if o.For < leastOverride || o.For > mostOverride {
		c.refuse("Override.For", o.For.String(), "from 1s to 87840h (3660 days)")
	}
	c.printable("Override.By", o.By, longestOverrideBy)
	c.printable("Override.Reason", o.Reason, longestOverrideText)
	limits := slices.Clone(o.Limits)
	switch {
	case o.Unlimited && len(limits) > 0:
		c.refuse("Override.Limits", fmt.Sprintf("%d of them", len(limits)), "none, as it is Unlimited")
	case !o.Unlimited && (len(limits) == 0 || len(limits) != len(p.Limits)):
		c.refuse("Override.Limits", fmt.Sprintf("%d of them", len(limits)),
			strconv.Itoa(len(p.Limits))+", as the policy has, or none and Unlimited")
	default:
		c.overriding(p, limits)
	}
	return limits, errors.Join(c.errs...)
}

// overriding checks limits that hold instead of those of a policy, and gives them their names.
func (c *checker) overriding(p *livePolicy, limits []Limit) {
	for i := range limits {
		l, of := &limits[i], &p.Limits[i]
		at := fmt.Sprintf("Override.Limits[%d]", i)
		if err := l.Check(); err != nil {
			c.add(fmt.Errorf("%s: %w", at, err))
			continue
		}
		if l.Name != "" && l.Name != of.Name {
			c.refuse(at+".Name", strconv.Quote(l.Name), strconv.Quote(of.Name)+", as in the policy, or none")
		}
		if !alike(l.Limit, of.Limit) {
			c.refuse(at, l.String(), "the algorithm of the policy, "+of.Algorithm().String()+", and its segments")
		}
		l.Name = of.Name
	}
	if p.shared {
		c.stored("Override.Limits", limits)
	}
}

// printable refuses what cannot be shown in one line.
func (c *checker) printable(option, s string, longest int) {
	if len(s) > longest {
		c.refuse(option, fmt.Sprintf("%d bytes", len(s)), fmt.Sprintf("at most %d bytes", longest))
		return
	}
	if !utf8.ValidString(s) {
		c.refuse(option, strconv.Quote(s), "UTF-8")
		return
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			c.refuse(option, strconv.Quote(s), "printable characters")
			return
		}
	}
}

// rest is for how long the override still holds. It may be called of nil.
func (x *override) rest(now int64) time.Duration {
	if x == nil {
		return 0
	}
	return time.Duration(max(x.until-now, 0))
}
