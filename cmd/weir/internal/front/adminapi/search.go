package adminapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/internal/keytext"
	"github.com/weirhq/weir/policy"
)

const (
	inWord        = "word"
	longestWord   = 8192
	usualMentions = 20
	// mostSearches is how many searches there are at a time, and mostOfSearch how long one may take.
	mostSearches = 2
	mostOfSearch = 5 * time.Second
)

// search serves GET admin.SearchPath.
func (h *Handler) search(q *call) (any, *answer.Problem) {
	text := operator.KeyOf(q.values.Get(inWord))
	if strings.TrimSpace(text) == "" || len(text) > longestWord {
		return nil, answer.BadField(http.StatusBadRequest, inWord, answer.Excerpt(text),
			"must be an address, a network, a key, or a value of requests such as a user: from 1 to 8192 bytes")
	}
	ctx, cancel := context.WithTimeout(q.r.Context(), mostOfSearch)
	defer cancel()
	select {
	case h.searches <- struct{}{}:
		defer func() { <-h.searches }()
	case <-ctx.Done():
		return nil, answer.Later("%d searches are under way, which is all there may be", mostSearches)
	}
	found, err := h.o.Limits.Engine().Search(ctx, text)
	if err != nil {
		return nil, h.failed(err)
	}
	return h.searched(ctx, text, &found, q.n), nil
}

// searched is the result of a search, with at most n refusals.
func (h *Handler) searched(ctx context.Context, text string, found *policy.Search, n int) *operator.Search {
	word := keytext.ParseWord(text)
	status := h.o.Status()
	s := &operator.Search{
		Word: operator.SpellKey(text), Keys: []operator.FoundKey{}, More: found.More, Unsearched: []operator.Unsearched{},
		Policies: found.Policies, Others: status["store"] != nil || status["cluster"] != nil,
		Refusals: h.o.Refusals.Last(RefusalQuery{Word: word, Most: n}),
	}
	switch {
	case word.Addr.IsValid():
		s.Address = word.Addr.String()
	case word.Net.IsValid():
		s.Address = word.Net.String()
	}
	set := h.o.Limits.Engine().Set()
	policies := make(map[string]*policy.Policy, len(set.Policies))
	for i := range set.Policies {
		policies[set.Policies[i].Name] = &set.Policies[i]
	}
	seen := make(map[[2]string]bool, len(found.Keys))
	for i := range found.Keys {
		seen[[2]string{found.Keys[i].Policy, found.Keys[i].Key}] = true
	}
	refused := h.refusedKeys(ctx, &s.Refusals, policies, seen)
	for _, keys := range [][]policy.FoundKey{refused, found.Keys} {
		for i := range keys {
			s.Keys = append(s.Keys, h.foundKey(&keys[i], policies[keys[i].Policy]))
		}
	}
	slices.SortStableFunc(s.Keys, func(a, b operator.FoundKey) int {
		return cmp.Or(first(b.Refuses())-first(a.Refuses()), first(b.Known())-first(a.Known()))
	})
	for _, u := range found.Unsearched {
		s.Unsearched = append(s.Unsearched, operator.Unsearched{Policy: u.Policy, Why: h.o.Limits.Clean(u.Why)})
	}
	for i := range s.Refusals.Refusals {
		h.cleanRefusal(&s.Refusals.Refusals[i])
	}
	return s
}

func first(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// mostRefusedKeys is how many keys of refusals are looked at that were not found otherwise.
const mostRefusedKeys = 32

// refusedKeys are the keys of refusals that were not found otherwise, which tell of a client that is not in its key.
func (h *Handler) refusedKeys(
	ctx context.Context, last *operator.Refusals, policies map[string]*policy.Policy, seen map[[2]string]bool,
) (all []policy.FoundKey) {
	for i := range last.Refusals {
		for j := range last.Refusals[i].Limits {
			l := &last.Refusals[i].Limits[j]
			at := [2]string{l.Policy, l.Key}
			if l.Allowed || seen[at] || policies[l.Policy] == nil || len(all) == mostRefusedKeys {
				continue
			}
			seen[at] = true
			k, err := h.o.Limits.Engine().Key(ctx, l.Policy, l.Key)
			if err != nil {
				k = policy.KeyState{Policy: l.Policy, Key: l.Key, Named: true, Mode: policies[l.Policy].Mode}
			}
			all = append(all, policy.FoundKey{KeyState: k, How: leadsAsRefused, Err: err})
		}
	}
	return all
}

// leadsAsRefused is a key of a refusal that names the word.
const leadsAsRefused policy.Leading = "refused"

func (h *Handler) foundKey(k *policy.FoundKey, of *policy.Policy) operator.FoundKey {
	found := operator.FoundKey{Key: h.keyOf(&k.KeyState), How: string(k.How)}
	if k.Err != nil {
		found.Error = strings.TrimPrefix(h.o.Limits.Clean(k.Err.Error()), "weir: ")
	}
	if of != nil { // of another set for a moment
		found.Kept = of.Consistency.String()
		if of.Durability != policy.DurabilityMemory {
			found.Kept = of.Durability.String()
		}
	}
	return found
}
