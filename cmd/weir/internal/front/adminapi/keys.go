package adminapi

import (
	"net/http"
	"slices"

	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/policy"
)

const (
	usualKeys     = 20
	mostKeys      = 10_000
	usualLockouts = 100
	mostLockouts  = 4096
	usualRefusals = 100
)

// keys serves GET admin.KeysPath.
func (h *Handler) keys(w http.ResponseWriter, r *http.Request) *answer.Problem {
	values, p := parameters(r, inPolicy, "n")
	if p != nil {
		return p
	}
	n, p := count(values, usualKeys, mostKeys)
	if p != nil {
		return p
	}
	name := values.Get(inPolicy)
	if p := h.policyNamed(name); p != nil {
		return p
	}
	top, err := h.o.Limits.Engine().Top(r.Context(), name, n)
	if err != nil {
		return h.failed(w, err)
	}
	return writeJSON(w, h.keysOf(top))
}

func (h *Handler) keysOf(states []policy.KeyState) []operator.Key {
	all := make([]operator.Key, len(states))
	for i := range states {
		all[i] = h.keyOf(&states[i])
	}
	return all
}

// key serves GET admin.KeyPath.
func (h *Handler) key(w http.ResponseWriter, r *http.Request) *answer.Problem {
	values, p := parameters(r, inPolicy, inKey)
	if p != nil {
		return p
	}
	name := values.Get(inPolicy)
	if p := h.policyNamed(name); p != nil {
		return p
	}
	state, err := h.o.Limits.Engine().Key(r.Context(), name, values.Get(inKey))
	if err != nil {
		return h.failed(w, err)
	}
	return writeJSON(w, h.keyOf(&state))
}

func (h *Handler) keyOf(s *policy.KeyState) operator.Key {
	k := operator.Key{
		Policy: s.Policy, Key: operator.SpellKey(s.Key), Named: s.Named, ID: s.ID,
		Limits:    make([]operator.KeyLimit, len(s.Limits)),
		LockedFor: seconds(s.LockedFor), RecentRefusals: s.RecentRefusals,
	}
	for i := range s.Limits {
		l := &s.Limits[i]
		d := &l.Decision
		k.Limits[i] = operator.KeyLimit{
			Name: l.Limit, Holds: h.o.Limits.Clean(l.Holds), Tracked: l.Tracked, Allowed: d.Allowed, Reason: d.Reason.String(),
			Limit: d.Limit, Remaining: d.Remaining, RetryAfter: seconds(d.RetryAfter), ResetAfter: seconds(d.ResetAfter),
			Queued: l.Queued, Waiters: l.Waiters, Refused: l.Refused,
		}
	}
	if s.Override != nil {
		o := overrideOf(s.Override)
		k.Override = &o
	}
	return k
}

// lockouts serves GET admin.LockoutsPath.
func (h *Handler) lockouts(w http.ResponseWriter, r *http.Request) *answer.Problem {
	values, p := parameters(r, inPolicy, "n")
	if p != nil {
		return p
	}
	n, p := count(values, usualLockouts, mostLockouts)
	if p != nil {
		return p
	}
	name := values.Get(inPolicy)
	if name != "" {
		if p := h.policyNamed(name); p != nil {
			return p
		}
	}
	locked, err := h.o.Limits.Engine().Locked(name, n)
	if err != nil {
		return h.failed(w, err)
	}
	all := make([]operator.Lockout, len(locked))
	for i, l := range locked {
		all[i] = operator.Lockout{Policy: l.Policy, Key: operator.SpellKey(l.Key), For: seconds(l.For)}
	}
	return writeJSON(w, all)
}

// refusals serves GET admin.RefusalsPath.
func (h *Handler) refusals(w http.ResponseWriter, r *http.Request) *answer.Problem {
	values, p := parameters(r, inPolicy, inKey, "n")
	if p != nil {
		return p
	}
	n, p := count(values, usualRefusals, MostRefusals)
	if p != nil {
		return p
	}
	q := RefusalQuery{Most: n}
	if values.Has(inPolicy) {
		name := values.Get(inPolicy) // it may be gone, and what it has refused is still there
		q.Policy = &name
	}
	if values.Has(inKey) {
		q.Keys = h.countedKeys(q.Policy, values.Get(inKey))
	}
	last := h.o.Refusals.Last(q)
	for i := range last.Refusals {
		h.cleanRefusal(&last.Refusals[i])
	}
	return writeJSON(w, &last)
}

// countedKeys are what requests are counted under that have a key, under one policy or under all.
func (h *Handler) countedKeys(name *string, key string) []string {
	all := []string{key}
	engine := h.o.Limits.Engine()
	for _, p := range engine.Set().Policies {
		if name != nil && *name != p.Name {
			continue
		}
		if counted := engine.CountedKey(p.Name, key); !slices.Contains(all, counted) {
			all = append(all, counted)
		}
	}
	return all
}

// refusal serves GET admin.RefusalPath.
func (h *Handler) refusal(w http.ResponseWriter, r *http.Request) *answer.Problem {
	values, p := parameters(r, "id")
	if p != nil {
		return p
	}
	text := values.Get("id")
	id, ok := answer.ParseRefusal(text)
	if !ok {
		return answer.BadField(http.StatusBadRequest, "id", answer.Excerpt(text),
			"must be the 16 hexadecimal digits of the field Weir-Refusal")
	}
	found, ok := h.o.Refusals.Find(id)
	if !ok {
		return answer.BadField(http.StatusNotFound, "id", answer.Excerpt(text),
			"must be that of one of the last 4096 refusals of this server since it has started")
	}
	h.cleanRefusal(&found)
	return writeJSON(w, &found)
}

// cleanRefusal takes out what came from the environment.
func (h *Handler) cleanRefusal(r *operator.Refusal) {
	for i := range r.Limits {
		r.Limits[i].Holds = h.o.Limits.Clean(r.Limits[i].Holds)
		r.Limits[i].Key = operator.SpellKey(r.Limits[i].Key)
	}
}
