package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/keytext"
	"github.com/weirhq/weir/keyset"
)

// Search is what an engine knows of a word: the address of a client, a network, or a value of requests such as a user or a key of
// an API.
type Search struct {
	// Keys are those that were found: first those that are locked out, then by pressure, then those without a state, at most 256.
	// More is how many were left out.
	Keys []FoundKey
	More int
	// Unsearched names the policies that may have keys of the word that were not found, and why. A policy is in it at most once.
	Unsearched []Unsearched
	// Policies is how many policies there are.
	Policies int
}

// FoundKey is a key of a policy that a word leads to.
type FoundKey struct {
	KeyState

	// How is how the word leads to the key.
	How Leading
	// Err is why the state is not known: then there are no Limits.
	Err error
}

// Leading is how a word leads to a key.
type Leading string

const (
	// LeadsAsKey is a key that is the word.
	LeadsAsKey Leading = "key"
	// LeadsAsMade is the key that the policy makes of a request from this address, or with this value.
	LeadsAsMade Leading = "made"
	// LeadsAsPart is a key that has the word as one of its parts.
	LeadsAsPart Leading = "part"
	// LeadsAsAll is the key that all requests share.
	LeadsAsAll Leading = "all"
)

// Unsearched is a policy of which there may be keys of a word that were not found.
type Unsearched struct {
	Policy string
	Why    string
}

// Known reports whether anything is kept of the key, or may be.
func (k *FoundKey) Known() bool {
	return k.Err != nil || k.LockedFor > 0 || k.Override != nil ||
		slices.ContainsFunc(k.Limits, func(l LimitState) bool { return l.Tracked || l.Refused > 0 || l.Waiters > 0 })
}

const (
	mostFound = 256
	// mostSearched is how many keys of this process are looked at, and mostAsked how many keys of a store, one after the other.
	mostSearched = 20_000
	mostAsked    = 64
	// mostNamed is how many names are compared with the word.
	mostNamed = 500_000
	// longestWord is how long a word may be, in bytes.
	longestWord = 8192
)

// Search looks for the keys of a word, and takes nothing: the keys that each policy makes of an address or a value, the word
// itself as a key, and the keys that are known by name and have it as a part. Names are known of the keys that were refused most
// by this process, of those that are locked out, and of those that are overridden. A store is asked for at most 64 keys, one
// after the other, until ctx ends, and not again once it has failed. The error is an *[weir.OptionError] for a word that is empty
// or has more than 8192 bytes.
func (e *Engine) Search(ctx context.Context, word string) (Search, error) {
	if word == "" || len(word) > longestWord {
		return Search{}, &weir.OptionError{
			Option: "word", Value: fmt.Sprintf("%d bytes", len(word)), Accepted: "from 1 to 8192 bytes",
		}
	}
	f := finder{e: e, s: e.live.Load(), ctx: e.asking(ctx), word: keytext.ParseWord(word)}
	f.searching = make([]searching, len(f.s.live))
	f.keysOfRules()
	for i := range f.s.live {
		f.made(i)
	}
	for i := range f.s.live {
		f.others(i)
	}
	return f.result(), nil
}

// finder searches.
type finder struct {
	e    *Engine
	s    *snapshot
	ctx  context.Context //nolint:containedctx // of one call
	word *keytext.Word

	searching            []searching // of each policy
	found                []FoundKey
	looked, asked, named int
	away                 [2]error // what the store, and what the owner of durable limits, has failed with
}

// searching is what is searched in a policy.
type searching struct {
	keys []Text // of the policy, and those that rules have instead, each once; nil is that of all requests
	word *keytext.Word
	seen map[string]bool
	why  []string // there may be more
}

// keysOfRules collects what keys are made of.
func (f *finder) keysOfRules() {
	for i := range f.s.live {
		f.searching[i] = searching{word: f.word, seen: map[string]bool{}}
		f.addKey(i, f.s.live[i].Key)
	}
	for _, uses := range f.s.uses {
		for _, u := range *uses {
			if u.key != nil {
				f.addKey(u.policy, u.key)
			}
		}
	}
}

// mostKeyTexts is how many different keys of a policy are looked at.
const mostKeyTexts = 64

func (f *finder) addKey(policy int, key Text) {
	of := &f.searching[policy]
	spelled := spelledKey(key)
	if slices.ContainsFunc(of.keys, func(t Text) bool { return spelledKey(t) == spelled }) {
		return
	}
	if len(of.keys) == mostKeyTexts {
		of.becausef("rules have more than %d different keys for it", mostKeyTexts)
		return
	}
	of.keys = append(of.keys, key)
}

func spelledKey(key Text) string {
	if key == nil {
		return ""
	}
	return key.String()
}

func (of *searching) becausef(format string, args ...any) {
	if why := fmt.Sprintf(format, args...); !slices.Contains(of.why, why) {
		of.why = append(of.why, why)
	}
}

// made looks at the keys that a policy makes of the word.
func (f *finder) made(i int) {
	of := &f.searching[i]
	for _, key := range of.keys {
		switch {
		case key == nil:
			f.look(i, "", LeadsAsAll)
			continue
		case isNamed(key):
			if len(of.keys) == 1 {
				of.becausef("callers name its keys: one that has the word as a part " +
					"is known only if it is among those refused most")
			}
			continue
		}
		parts := partsOf(key)
		if f.word.Addr.IsValid() && len(parts.clients) > 0 {
			of.forms(parts.clientForms(f.word.Addr))
		}
		f.madeOf(i, key, &parts)
	}
}

// isNamed reports whether a key is that which the caller names.
func isNamed(key Text) bool {
	_, named := key.(namedKey)
	return named
}

func (of *searching) forms(all []string) {
	of.word = of.word.Copy()
	for _, form := range all {
		of.word.Add(form)
	}
}

func (f *finder) madeOf(i int, key Text, parts *textParts) {
	of := &f.searching[i]
	isClient := f.word.Addr.IsValid()
	switch clients, values := len(parts.clients), len(parts.values); {
	case !parts.all:
		of.becausef("what its keys are is not told by a word alone: %s", key)
	case clients == 0 && values == 0:
		f.compute(i, key, new(Request), LeadsAsAll)
	case clients > 0 && values == 0 && isClient:
		f.compute(i, key, &Request{Client: f.word.Addr}, LeadsAsMade)
	case clients > 0 && values == 0 && f.word.Net.IsValid():
		of.becausef("of the clients in the network only those that were refused most are known by name: its keys are %s", key)
	case clients > 0 && values == 0:
		of.becausef("its keys are made of the address of the client, which the word is not: %s", key)
	case clients == 0 && values == 1:
		r := new(Request)
		parts.values[0].put(r, f.word.Text)
		if !isClient && !f.word.Net.IsValid() {
			f.compute(i, key, r, LeadsAsMade)
			return
		}
		f.compute(i, key, r, LeadsAsKey)
		of.becausef("an address does not tell what its keys are made of: %s", key)
	default:
		of.becausef("its keys have several parts, and only those that were refused most are known by name: %s", key)
	}
}

// compute looks at the key that a policy makes of a request.
func (f *finder) compute(i int, key Text, r *Request, how Leading) {
	text, err := appendText(nil, key, r)
	if err != nil {
		f.searching[i].becausef("its key cannot be computed: %s", strings.TrimPrefix(err.Error(), "weir: "))
		return
	}
	f.look(i, string(text), how)
}

// others looks at the word itself as a key of a policy, and at the keys of which it is a part.
func (f *finder) others(i int) {
	f.look(i, f.s.live[i].counted(f.word.Text), LeadsAsKey)
	if f.word.Addr.IsValid() {
		f.look(i, f.word.Addr.String(), LeadsAsKey)
	}
	of, p := &f.searching[i], &f.s.live[i]
	name := func(key string, _ uint64) bool {
		if f.named++; f.named > mostNamed {
			of.becausef("more than %d names of keys are not compared in one search", mostNamed)
			return false
		}
		if !of.seen[key] && of.word.In(key) {
			f.look(i, key, LeadsAsPart)
		}
		return true
	}
	p.names(name)
}

// names calls f with the names of keys that are known, some of them more than once, until it returns false.
func (p *livePolicy) names(f func(key string, refused uint64) bool) {
	if p.shared {
		for key, n := range p.state.refusals.all() {
			if !f(key, n) {
				return
			}
		}
	} else {
		for i := range p.limits {
			for key, n := range keyset.Of(p.limits[i].state.limiter).Names() {
				if !f(key, n) {
					return
				}
			}
		}
	}
	if p.state.lockouts != nil {
		for _, key := range p.state.lockouts.names.last() {
			if !f(key, 0) {
				return
			}
		}
	}
	more := true
	p.overrides.each(func(x *override) { more = more && f(x.Key, 0) })
}

// look looks at a key of a policy.
func (f *finder) look(i int, key string, how Leading) {
	of, p := &f.searching[i], &f.s.live[i]
	if of.seen[key] {
		return
	}
	of.seen[key] = true
	if f.looked++; f.looked > mostSearched {
		of.becausef("more than %d keys are not looked at in one search", mostSearched)
		return
	}
	found := FoundKey{KeyState: f.e.aboutKey(p, key), How: how}
	found.Err = f.state(p, key, &found.KeyState)
	if found.Err != nil {
		found.Limits = nil
		of.becausef("%s", strings.TrimPrefix(found.Err.Error(), "weir: "))
	}
	// Any word can be a key that is asked for by name: it says nothing that it is none.
	if how == LeadsAsKey && found.Err != nil && found.LockedFor == 0 && found.Override == nil {
		return
	}
	if (how == LeadsAsKey || how == LeadsAsPart) && !found.Known() {
		return
	}
	f.found = append(f.found, found)
}

var (
	errManyAsked   = errors.New("the store was not asked: a search asks for at most 64 keys")
	errSearchEnded = errors.New("the store was not asked: the search has taken too long")
)

// state reads the limits of a key.
func (f *finder) state(p *livePolicy, key string, k *KeyState) error {
	away := &f.away[0]
	if p.durable {
		away = &f.away[1]
	}
	if p.shared {
		switch {
		case *away != nil:
			return *away
		case f.ctx.Err() != nil:
			return errSearchEnded
		case f.asked == mostAsked:
			return errManyAsked
		}
		f.asked++
	}
	for i := range p.limits {
		l, err := f.e.limitOf(f.ctx, p, i, key, k)
		if err != nil {
			*away = err
			return err
		}
		k.Limits = append(k.Limits, l)
	}
	return nil
}

// result is what was found.
func (f *finder) result() Search {
	s := Search{Keys: f.found, Policies: len(f.s.live)}
	for i := range f.searching {
		if why := f.searching[i].why; len(why) > 0 {
			s.Unsearched = append(s.Unsearched, Unsearched{f.s.live[i].Name, strings.Join(why, "; ")})
		}
	}
	slices.SortStableFunc(s.Keys, func(a, b FoundKey) int { return compareFound(&a, &b) })
	if s.More = len(s.Keys) - mostFound; s.More > 0 {
		s.Keys = s.Keys[:mostFound]
	}
	s.More = max(s.More, 0)
	return s
}

// compareFound orders keys: those that were refused first.
func compareFound(a, b *FoundKey) int {
	return cmp.Or(
		cmp.Compare(b.LockedFor, a.LockedFor), cmp.Compare(b.refusing(), a.refusing()), cmp.Compare(b.known(), a.known()),
		cmp.Compare(b.pressure(), a.pressure()),
	)
}

func (k *FoundKey) refusing() int {
	if slices.ContainsFunc(k.Limits, func(l LimitState) bool { return !l.Decision.Allowed }) {
		return 1
	}
	return 0
}

func (k *FoundKey) known() int {
	if k.Known() {
		return 1
	}
	return 0
}

// pressure is the part of a limit that is used, of the limit of which it is the most.
func (k *FoundKey) pressure() (most float64) {
	for i := range k.Limits {
		most = max(most, k.Limits[i].used())
	}
	return most
}
