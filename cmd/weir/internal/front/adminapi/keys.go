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
func (h *Handler) keys(q *call) (any, *answer.Problem) {
	name := q.values.Get(inPolicy)
	if p := h.policyNamed(name); p != nil {
		return nil, p
	}
	top, err := h.o.Limits.Engine().Top(q.r.Context(), name, q.n)
	if err != nil {
		return nil, h.failed(err)
	}
	return h.keysOf(top), nil
}

func (h *Handler) keysOf(states []policy.KeyState) []operator.Key {
	all := make([]operator.Key, len(states))
	for i := range states {
		all[i] = h.keyOf(&states[i])
	}
	return all
}

// key serves GET admin.KeyPath.
func (h *Handler) key(q *call) (any, *answer.Problem) {
	name := q.values.Get(inPolicy)
	if p := h.policyNamed(name); p != nil {
		return nil, p
	}
	state, err := h.o.Limits.Engine().Key(q.r.Context(), name, q.values.Get(inKey))
	if err != nil {
		return nil, h.failed(err)
	}
	return h.keyOf(&state), nil
}

func (h *Handler) keyOf(s *policy.KeyState) operator.Key {
	k := operator.Key{
		Policy: s.Policy, Key: operator.SpellKey(s.Key), Named: s.Named, ID: s.ID, Mode: s.Mode.String(),
		Limits:    make([]operator.KeyLimit, len(s.Limits)),
		LockedFor: operator.SecondsOf(s.LockedFor), RecentRefusals: s.RecentRefusals,
	}
	for i := range s.Limits {
		l := &s.Limits[i]
		d := &l.Decision
		k.Limits[i] = operator.KeyLimit{
			Name: l.Limit, Holds: h.o.Limits.Clean(l.Holds), Tracked: l.Tracked, Allowed: d.Allowed, Reason: d.Reason.String(),
			Limit: d.Limit, Remaining: d.Remaining, RetryAfter: operator.SecondsOf(d.RetryAfter),
			ResetAfter: operator.SecondsOf(d.ResetAfter), Queued: l.Queued, Waiters: l.Waiters, Refused: l.Refused,
		}
	}
	if s.Override != nil {
		o := overrideOf(s.Override)
		k.Override = &o
	}
	return k
}

// lockouts serves GET admin.LockoutsPath.
func (h *Handler) lockouts(q *call) (any, *answer.Problem) {
	name := q.values.Get(inPolicy)
	if name != "" {
		if p := h.policyNamed(name); p != nil {
			return nil, p
		}
	}
	locked, err := h.o.Limits.Engine().Locked(name, q.n)
	if err != nil {
		return nil, h.failed(err)
	}
	all := make([]operator.Lockout, len(locked))
	for i, l := range locked {
		all[i] = operator.Lockout{Policy: l.Policy, Key: operator.SpellKey(l.Key), For: operator.SecondsOf(l.For)}
	}
	return all, nil
}

// refusals serves GET admin.RefusalsPath.
func (h *Handler) refusals(q *call) (any, *answer.Problem) {
	of := RefusalQuery{Most: q.n}
	if q.values.Has(inPolicy) {
		name := q.values.Get(inPolicy) // it may be gone, and what it has refused is still there
		of.Policy = &name
	}
	if q.values.Has(inKey) {
		of.Keys = h.countedKeys(of.Policy, q.values.Get(inKey))
	}
	last := h.o.Refusals.Last(of)
	for i := range last.Refusals {
		h.cleanRefusal(&last.Refusals[i])
	}
	return &last, nil
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
func (h *Handler) refusal(q *call) (any, *answer.Problem) {
	text := q.values.Get("id")
	id, ok := answer.ParseRefusal(text)
	if !ok {
		return nil, answer.BadField(http.StatusBadRequest, "id", answer.Excerpt(text),
			"must be the 16 hexadecimal digits of the field Weir-Refusal")
	}
	found, ok := h.o.Refusals.Find(id)
	if !ok {
		return nil, answer.BadField(http.StatusNotFound, "id", answer.Excerpt(text),
			"must be that of one of the last 4096 refusals of this server since it has started")
	}
	h.cleanRefusal(&found)
	return &found, nil
}

// cleanRefusal takes out what came from the environment.
func (h *Handler) cleanRefusal(r *operator.Refusal) {
	for i := range r.Limits {
		r.Limits[i].Holds = h.o.Limits.Clean(r.Limits[i].Holds)
		r.Limits[i].Key = operator.SpellKey(r.Limits[i].Key)
	}
}
