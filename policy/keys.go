package policy

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/keytext"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/store"
)

// KeyState is what is known of a key of a policy.
type KeyState struct {
	Policy string
	Key    string
	// Named reports whether Key is known: a table keeps hashes, and the names of those that are refused most. Otherwise Key is
	// "", and ID stands for it as long as the process lives.
	Named bool
	ID    string
	// Mode is that of the policy: what it would refuse is refused by ModeEnforce alone.
	Mode Mode
	// Limits are those of the policy, in their order. Of [Engine.Top] it is the one under the most pressure alone.
	Limits []LimitState
	// LockedFor is for how long the key is still locked out, 0 if it is not. RecentRefusals is how many of its refusals count
	// towards a lockout. Both are those of this process, and 0 for a key that is not Named.
	LockedFor      time.Duration
	RecentRefusals int
	// Override is the one in force, nil if there is none.
	Override *Override
}

// LimitState is what is known of a key of a limit.
type LimitState struct {
	// Limit is the name of the limit, and Holds is the limit of the key in words, such as "10/s, burst 20", or "unlimited" by an
	// override. For a tracked key of this process it is the one in force, for others the one without a tier and without what
	// requests bring.
	Limit string
	Holds string
	// Tracked reports whether anything is kept of the key. Otherwise all is available.
	Tracked bool
	// Decision is that of a probe, which is allowed if a permit is available, with its Limit, Remaining, RetryAfter and
	// ResetAfter. Its Policy is the name of the limit in decisions.
	Decision weir.Decision
	// Queued is how many permits are waited for, and Waiters by how many requests. They are 0 for limits that are kept in a
	// store.
	Queued  int64
	Waiters int
	// Refused is how often this process has refused the key since its name is remembered: if the key is kept in a store, by the
	// policy.
	Refused uint64
}

// holdsUnlimited is what holds for a key whose override says so.
const holdsUnlimited = "unlimited"

// Key returns what is known of a key of a policy, and takes nothing. The Key that is returned is that of [Engine.CountedKey]. The
// error is an *[weir.OptionError] if there is no such policy, or that of the store.
func (e *Engine) Key(ctx context.Context, policy, key string) (KeyState, error) {
	p := e.live.Load().policy(policy)
	if p == nil {
		return KeyState{}, noPolicy(policy)
	}
	key = p.counted(key)
	k := e.aboutKey(p, key)
	for i := range p.limits {
		l, err := e.limitOf(ctx, p, i, key, &k)
		if err != nil {
			return KeyState{}, err
		}
		k.Limits = append(k.Limits, l)
	}
	return k, nil
}

// aboutKey is what is known of a key without its limits.
func (e *Engine) aboutKey(p *livePolicy, key string) KeyState {
	k := KeyState{Policy: p.Name, Key: strings.Clone(key), Named: true, ID: p.idOf(key), Mode: p.Mode}
	now := e.now()
	if p.state.lockouts != nil {
		k.LockedFor, k.RecentRefusals = p.state.lockouts.look([]byte(key), now, p.Lockout)
	}
	if x := p.overrides.of([]byte(key)); x != nil {
		if o, ok := x.now(now); ok {
			k.Override = &o
		}
	}
	return k
}

// idOf stands for a key of a policy.
func (p *livePolicy) idOf(key string) string {
	switch {
	case p.state.refusals != nil:
		return fmt.Sprintf("%016x", p.state.refusals.hash([]byte(key)).Fingerprint())
	case len(p.limits) > 0:
		s, _ := keyset.Of(p.limits[0].state.limiter).State(key)
		return s.ID
	}
	return ""
}

// limitOf is what is known of a key of the i-th limit.
func (e *Engine) limitOf(ctx context.Context, p *livePolicy, i int, key string, k *KeyState) (l LimitState, err error) {
	if p.shared {
		l, err = e.storedLimitOf(ctx, p, i, key)
	} else {
		s, tracked := keyset.Of(p.limits[i].state.limiter).State(key)
		if !tracked && k.Override == nil {
			s = p.untracked(i, key, s)
		}
		l = p.limitState(i, &s, tracked)
	}
	if k.Override != nil && k.Override.Unlimited {
		l.Holds = holdsUnlimited
		l.Decision = noLimit()
		l.Decision.Policy = p.limits[i].name
	}
	return l, err
}

// untracked is the state of a key of which nothing is kept under the limit that would apply to it.
func (p *livePolicy) untracked(i int, key string, s keyset.State[string]) keyset.State[string] {
	s.Held = p.keyed(key).at(i)
	s.Limit = s.Held.Permits()
	s.Remaining = s.Limit
	return s
}

// limitState is what a limit of this process says.
func (p *livePolicy) limitState(i int, s *keyset.State[string], tracked bool) LimitState {
	d := weir.Decision{
		Allowed: s.RetryAfter == 0 && s.Remaining > 0, // a concurrency limit does not know when a permit comes back
		Limit:   s.Limit, Remaining: s.Remaining, RetryAfter: s.RetryAfter, ResetAfter: s.ResetAfter,
		Policy: p.limits[i].name,
	}
	switch {
	case d.Allowed:
	case tracked:
		d.Reason = weir.ReasonLimited
	default: // all is available, but there is no room for the key
		d.Reason = weir.ReasonTableFull
	}
	return LimitState{
		Limit: p.Limits[i].Name, Holds: s.Held.String(), Tracked: tracked, Decision: d,
		Queued: s.Queued, Waiters: s.Waiters, Refused: s.Refused,
	}
}

// storedLimitOf is what a store says.
func (e *Engine) storedLimitOf(ctx context.Context, p *livePolicy, i int, key string) (LimitState, error) {
	l := LimitState{Limit: p.Limits[i].Name, Holds: p.limitsFor(key).limits[i].String()}
	state, err := e.inspect(e.asking(ctx), p, i, key)
	if err != nil {
		return l, err
	}
	l.Tracked, l.Decision = state.Known, state.Decision
	l.Decision.Policy = p.limits[i].name
	l.Refused = p.state.refusals.count(key)
	return l, nil
}

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
			t.all = append(t.all, KeyState{Policy: t.p.Name, ID: s.ID, Mode: t.p.Mode, Limits: []LimitState{l}})
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
		if rest := p.state.lockouts.rest([]byte(key), now, p.Lockout); rest > 0 {
			all = append(all, LockedKey{p.Name, key, rest})
		}
	}
	slices.SortFunc(all[from:], longerLocked)
	return all[:min(from+n, len(all))]
}

// CountedKey is what requests are counted under whose key is given as this text: the text itself, or what stands for it if it is
// long. All methods of an engine that take a key accept the text, and what stands for it. Without such a policy it is the text.
func (e *Engine) CountedKey(policy, key string) string {
	if p := e.live.Load().policy(policy); p != nil {
		return p.counted(key)
	}
	return key
}

// counted is what a key is counted under that an operator gives.
func (p *livePolicy) counted(key string) string {
	if len(key) <= keytext.MaxPart || keytext.StandsForLong(key) {
		return key
	}
	return string(appendNamed(nil, key, p.composed))
}

// appendNamed appends what a key is counted under that a caller names. It is what a rule would make of it: where keys are
// composed of several parts they may be long, and all others are bounded.
func appendNamed[S string | []byte](b []byte, key S, composed bool) []byte {
	if composed && len(key) <= store.MostKeyBytes && !keytext.StandsForLong(key) {
		return append(b, key...)
	}
	return keytext.AppendPart(b, key)
}

// countedKeys are the limits of keys by what these are counted under.
func (p *livePolicy) countedKeys() map[string][]Limit {
	if !slices.ContainsFunc(slices.Collect(maps.Keys(p.Keys)), func(key string) bool { return p.counted(key) != key }) {
		return p.Keys
	}
	all := maps.Clone(p.Keys)
	for key, limits := range p.Keys {
		if counted := p.counted(key); p.Keys[counted] == nil { // one that is named as it is counted comes first
			all[counted] = limits
		}
	}
	return all
}

// composedKeys notes of which policies a key has several parts.
func (s *snapshot) composedKeys() {
	for i := range s.live {
		s.live[i].composed = composed(s.live[i].Key)
	}
	for _, uses := range s.uses {
		for _, u := range *uses {
			p := &s.live[u.policy]
			p.composed = p.composed || composed(u.key)
		}
	}
}

// composed reports whether a text has several parts, each of which is bounded alone.
func composed(t Text) bool {
	var parts []Text
	switch t := t.(type) {
	case *joined:
		parts = t.parts
	case *concatenated:
		parts = t.parts
	}
	return len(parts) > 1 || len(parts) == 1 && composed(parts[0])
}

// Inspect returns what is kept for a key of a limit of a policy. The name of the limit may be "" if the policy has one only. For
// a limit of this process it has the decision of a probe, and nothing of what is reserved. The error is an *[weir.OptionError] if
// there is no such limit, or that of the store.
func (e *Engine) Inspect(ctx context.Context, policy, limit, key string) (store.State, error) {
	p := e.live.Load().policy(policy)
	if p == nil {
		return store.State{}, noPolicy(policy)
	}
	if i := p.place(limit); i >= 0 {
		return e.inspect(ctx, p, i, p.counted(key))
	}
	return store.State{}, &weir.OptionError{
		Option: fmt.Sprintf("limit of the policy %q", policy), Value: strconv.Quote(limit),
		Accepted: "the name of one of its limits",
	}
}

func (e *Engine) inspect(ctx context.Context, p *livePolicy, i int, key string) (store.State, error) {
	if p.shared {
		it := item{policy: p, variant: p.limitsFor(key)}
		return store.Inspect(ctx, e.states, appendStored(nil, boundKey(key), &it)[i])
	}
	d, _ := keyset.PeekAll(nil, p.chargeKey(nil, key, 0)[i])
	d[0].Policy = p.limits[i].name
	return store.State{Known: d[0].Remaining < d[0].Limit, Decision: d[0]}, nil
}

// reset resets a key of a limit where that is kept.
func (e *Engine) reset(ctx context.Context, p *livePolicy, name, key string) error {
	if p.durable {
		return store.Reset(ctx, e.options.Durable, name, key)
	}
	return store.Reset(ctx, e.options.Store, name, key)
}

func noPolicy(name string) error {
	return &weir.OptionError{Option: "policy", Value: strconv.Quote(name), Accepted: "the name of a policy"}
}

// Reset makes all permits of a key of a policy available, as if it had never been seen, in this process or in the store. A
// lockout goes on: see [Engine.Unlock]. The error is an *[weir.OptionError] if there is no such policy, or that of the store.
func (e *Engine) Reset(ctx context.Context, policy, key string) error {
	p := e.live.Load().policy(policy)
	if p == nil {
		return noPolicy(policy)
	}
	key = p.counted(key)
	for i := range p.limits {
		if !p.shared {
			p.limits[i].state.limiter.Reset(key)
		} else if err := e.reset(ctx, p, p.limits[i].name, boundKey(key)); err != nil {
			return err
		}
	}
	return nil
}

// StoredCharges are what the limits of a policy are charged to in the store that keeps them, for a key and with no permits: one
// for each limit, in their order, with the limits that apply to this key without a tier. They are for callers that ask the store
// itself, such as an operator that looks at a limit. It returns false if there is no such policy, or its limits are kept in this
// process.
func (e *Engine) StoredCharges(policy, key string) ([]store.Charge, bool) {
	p := e.live.Load().policy(policy)
	if p == nil || !p.shared {
		return nil, false
	}
	key = p.counted(key)
	it := item{policy: p, variant: p.limitsFor(key)}
	return appendStored(nil, boundKey(key), &it), true
}
