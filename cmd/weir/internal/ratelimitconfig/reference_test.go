package ratelimitconfig_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
)

// descriptor is one of a random tree.
type descriptor struct {
	key, value string
	pattern    *regexp.Regexp // of a value with asterisks
	shared     bool
	limit      int // requests per unit, which tells limits apart; 0 for none
	below      []*descriptor
}

// random makes trees and descriptors of few keys and values, so that they meet.
type random struct {
	*rand.Rand

	limits int
}

func (r *random) pick(of ...string) string { return of[r.IntN(len(of))] }

func (r *random) value() string {
	return r.pick("", "", "a", "ab", "abc", "b", "bb", "|", `\`, `|\`, "a_b", "=", "x/y", "ü")
}

// tree makes a list of descriptors, no two of which have the same key and value.
func (r *random) tree(depth int) []*descriptor {
	var list []*descriptor
	seen := make(map[string]bool)
	for range r.IntN(7) {
		d := &descriptor{key: r.pick("k", "k_a", "l", "k|", "m"), value: r.value()}
		if r.IntN(2) == 0 {
			d.value = r.pick("*", "a*", "ab*", "*b", "a*c", "a*b*", "**", "*a*", "x/*", "*b*b") // asterisks at any place
			d.pattern, d.shared = pattern(d.value), r.IntN(2) == 0
		}
		at := fmt.Sprintf("%q %q", d.key, d.value)
		if seen[at] {
			continue
		}
		seen[at] = true
		if r.IntN(3) > 0 {
			r.limits++
			d.limit = r.limits
		}
		if depth > 0 {
			d.below = r.tree(depth - 1)
		}
		list = append(list, d)
	}
	return list
}

// write writes a list as YAML.
func write(b *strings.Builder, indent string, list []*descriptor) {
	if len(list) == 0 {
		return
	}
	b.WriteString(indent + "descriptors:\n")
	for _, d := range list {
		fmt.Fprintf(b, "%s- key: %q\n%s  value: %q\n", indent, d.key, indent, d.value)
		if d.shared {
			b.WriteString(indent + "  share_threshold: true\n")
		}
		if d.limit > 0 {
			fmt.Fprintf(b, "%s  rate_limit: {unit: hour, requests_per_unit: %d}\n", indent, d.limit)
		}
		write(b, indent+"  ", d.below)
	}
}

// candidate is a descriptor that an entry could lead to.
type candidate struct {
	*descriptor

	rank    int    // the highest wins, and of several the first
	counted string // the value as the counter has it
}

// look finds a limit in the plainest way, and says which counter it has.
func look(list []*descriptor, asked []ratelimitconfig.Entry) (limit int, counter string) {
	for i, e := range asked {
		var found *candidate
		for _, d := range list {
			m := &candidate{descriptor: d, counted: e.Value}
			switch {
			case d.key != e.Key:
				continue
			case d.value == "":
				m.rank = 0
			case d.value == e.Value:
				m.rank = 2
			case d.pattern != nil && d.pattern.MatchString(e.Value):
				m.rank = 1
			default:
				continue
			}
			if found == nil || m.rank > found.rank {
				found = m
			}
		}
		if found == nil {
			return 0, ""
		}
		if found.shared {
			found.counted = found.value
		}
		counter += fmt.Sprintf("%q=%q ", e.Key, found.counted)
		list = found.below
		if i == len(asked)-1 {
			return found.limit, counter
		}
	}
	return 0, ""
}

// pattern is a value with asterisks as an expression.
func pattern(value string) *regexp.Regexp {
	return regexp.MustCompile("(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(value), `\*`, ".*") + "$")
}

// TestMatchAgainstReference compares limits and counters with those of the plainest way to look, on random trees.
func TestMatchAgainstReference(t *testing.T) {
	for seed := range uint64(50) {
		r := &random{Rand: rand.New(rand.NewPCG(seed, 3))}
		tree := r.tree(2)
		var b strings.Builder
		b.WriteString("domain: d|e\n")
		write(&b, "", tree)
		for _, policies := range []int{0, 1} {
			c := parse(t, ratelimitconfig.Options{Policies: policies}, b.String())
			ours := make(map[string]string) // counters of the reference by ours
			theirs := make(map[string]string)
			var m ratelimitconfig.Match
			for range 600 {
				descriptor := make([]ratelimitconfig.Entry, 1+r.IntN(3))
				for i := range descriptor {
					descriptor[i] = ratelimitconfig.Entry{Key: r.pick("k", "k_a", "l", "k|", "m"), Value: r.value() + r.pick("", "", "b", "c", "*")}
				}
				want, counter := look(tree, descriptor)
				c.Match(&m, "d|e", descriptor, ratelimitconfig.Override{}, 1)
				got := 0
				if m.Outcome == ratelimitconfig.Limited {
					got = int(m.Limit.RequestsPerUnit)
				}
				if got != want {
					t.Fatalf("seed %d: %q has the limit %d, want %d in\n%s", seed, descriptor, got, want, b.String())
				}
				if got == 0 {
					continue
				}
				own := m.Limit.Policy + "/" + string(m.Key)
				if known, seen := ours[own]; seen && known != counter {
					t.Fatalf("seed %d: %q and %q share the counter %q in\n%s", seed, known, counter, own, b.String())
				}
				if known, seen := theirs[counter]; seen && known != own {
					t.Fatalf("seed %d: %q has the counters %q and %q in\n%s", seed, counter, known, own, b.String())
				}
				ours[own], theirs[counter] = counter, own
			}
		}
	}
}
