package policy

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
)

const (
	mostTop = 10_000
	// mostStoredTop is how many keys Top asks a store about, one after the other.
	mostStoredTop = 128
)

// Top are the n keys of a policy under the highest pressure, n from 0 to 10,000: those locked out first, then those waited for,
// then by the part of the limit that is used, then by refusals, then by name. It looks at all keys of limits of this process,
// without delaying requests for long. Keys under the same pressure may be left out in any order. Of limits in a store it knows
// those that this process has refused most, at most 128 of them, and asks for the state of each. The error is that of
// [Engine.Key], or an *[weir.OptionError] for n.
//
// A key whose name is not known has its limit under the highest pressure too, and is not known to be locked out.
func (e *Engine) Top(ctx context.Context, policy string, n int) ([]KeyState, error) {
	if err := checkMost(n); err != nil {
		return nil, err
	}
	p := e.live.Load().policy(policy)
	if p == nil {
		return nil, noPolicy(policy)
	}
	if n == 0 {
		return nil, nil
	}
	t := topKeysOf{e: e, p: p, known: map[string]bool{}, ids: map[string]int{}}
	return t.top(ctx, n)
}

func checkMost(n int) error {
	if n < 0 || n > mostTop {
		return &weir.OptionError{Option: "n", Value: strconv.Itoa(n), Accepted: "from 0 to 10000"}
	}
	return nil
}

// topKeysOf collects the keys of a policy.
type topKeysOf struct {
	e     *Engine
	p     *livePolicy
	all   []KeyState
	known map[string]bool // by name
	ids   map[string]int  // of limits of this process: where the key with an ID is
}

func (t *topKeysOf) top(ctx context.Context, n int) ([]KeyState, error) {
	most, p := n, t.p
	if p.shared {
		most = min(n, mostStoredTop)
	}
	var names []string
	for _, l := range p.lockedKeys(nil, most, t.e.now()) {
		names = append(names, l.Key)
	}
	var tops [][]keyset.State[string]
	if p.shared {
		for _, k := range p.state.refusals.top(most) {
			names = append(names, k.Key)
		}
	} else {
		for i := range p.limits {
			top := keyset.Of(p.limits[i].state.limiter).Top(n)
			tops = append(tops, top)
			for j := range top {
				if top[j].Named {
					names = append(names, top[j].Key)
				}
			}
		}
	}
	for _, key := range names {
		if p.shared && len(t.all) == mostStoredTop {
			break
		}
		if err := t.add(ctx, key); err != nil {
			return nil, err
		}
	}
	for i := range tops {
		t.addUnnamed(i, tops[i])
	}
	slices.SortFunc(t.all, morePressed)
	return t.all[:min(n, len(t.all))], nil
}

// add adds a key, with the limit under the most pressure.
func (t *topKeysOf) add(ctx context.Context, key string) error {
	if t.known[key] {
		return nil
	}
	t.known[key] = true
	k := t.e.aboutKey(t.p, key)
	var worst *LimitState
	for i := range t.p.limits {
		l, err := t.e.limitOf(ctx, t.p, i, key, &k)
		if err != nil {
			return err
		}
		if worst == nil || pressure(&l, worst) > 0 {
			worst = &l
		}
	}
	if worst != nil {
		k.Limits = []LimitState{*worst}
		t.ids[k.ID] = len(t.all)
		t.all = append(t.all, k)
	}
	return nil
}

// addUnnamed adds the keys of a limit whose names are not known. Those that are in several limits are under the same ID.
func (t *topKeysOf) addUnnamed(i int, top []keyset.State[string]) {
	for j := range top {
		s := &top[j]
		if s.Named {
			continue
		}
		l := t.p.limitState(i, s, true)
		at, there := t.ids[s.ID]
		switch {
		case !there:
			t.ids[s.ID] = len(t.all)
			t.all = append(t.all, KeyState{Policy: t.p.Name, ID: s.ID, Limits: []LimitState{l}})
		case !t.all[at].Named && pressure(&l, &t.all[at].Limits[0]) > 0:
			t.all[at].Limits[0] = l
		}
	}
}

// used is the part of a limit that a key has used.
func (l *LimitState) used() float64 {
	d := &l.Decision
	if d.Limit <= 0 {
		return 0
	}
	return float64(d.Limit-d.Remaining) / float64(d.Limit)
}

// pressure compares by how much a key suffers from limits.
func pressure(a, b *LimitState) int {
	return cmp.Or(cmp.Compare(a.Queued, b.Queued), cmp.Compare(a.used(), b.used()), cmp.Compare(a.Refused, b.Refused))
}

// morePressed orders keys, those under the most pressure first.
func morePressed(a, b KeyState) int {
	return cmp.Or(
		cmp.Compare(b.LockedFor, a.LockedFor), pressure(&b.Limits[0], &a.Limits[0]),
		strings.Compare(a.Key, b.Key), strings.Compare(a.ID, b.ID),
	)
}

// LockedKey is a key that is locked out.
type LockedKey struct {
	Policy string
	Key    string
	// For is how long it is still locked out.
	For time.Duration
}

// Locked are keys of a policy that are locked out, those for the longest time first, at most n, from 0 to 10,000. The names of
// the last 4096 lockouts of a policy are kept, if they are no longer than 256 bytes; [PolicyReport] has how many keys there are.
// A policy of "" means all. The error is an *[weir.OptionError] for n, or if there is no such policy.
func (e *Engine) Locked(policy string, n int) ([]LockedKey, error) {
	if err := checkMost(n); err != nil {
		return nil, err
	}
	s, now := e.live.Load(), e.now()
	if policy != "" {
		p := s.policy(policy)
		if p == nil {
			return nil, noPolicy(policy)
		}
		return p.lockedKeys(nil, n, now), nil
	}
	var all []LockedKey
	for i := range s.live {
		all = s.live[i].lockedKeys(all, n, now)
	}
	slices.SortStableFunc(all, longerLocked)
	return all[:min(n, len(all))], nil
}

func longerLocked(a, b LockedKey) int {
	return cmp.Or(cmp.Compare(b.For, a.For), strings.Compare(a.Key, b.Key))
}

// lockedKeys appends keys that are locked out, at most n of them.
func (p *livePolicy) lockedKeys(all []LockedKey, n int, now int64) []LockedKey {
	if p.state.lockouts == nil {
		return all
	}
	from := len(all)
	for _, key := range p.state.lockouts.names.last() {
		if rest := p.state.lockouts.rest([]byte(key), now); rest > 0 {
			all = append(all, LockedKey{p.Name, key, rest})
		}
	}
	slices.SortFunc(all[from:], longerLocked)
	return all[:min(from+n, len(all))]
}
