package adminapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/front/checkapi"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/internal/inwords"
	"github.com/weirhq/weir/policy"
)

// change reads the body of a POST that is about a key of a policy. The key is that which is spelled so.
func (h *Handler) change(r *http.Request) (c operator.Change, p *answer.Problem) {
	text, p := body(r, &c)
	c.Key = operator.KeyOf(c.Key)
	if p == nil {
		p = h.checkChange(c.Policy, c.Key, c.Reason)
	}
	if p == nil {
		p = h.keyGiven(c.Policy, text)
	}
	return c, p
}

func (h *Handler) checkChange(name, key, reason string) *answer.Problem {
	if p := adminguard.WrongKey(key); p != nil {
		return p
	}
	if p := checkReason(reason); p != nil {
		return p
	}
	return h.policyNamed(name)
}

func checkReason(reason string) *answer.Problem {
	if len(reason) > operator.MostReason || !utf8.ValidString(reason) ||
		strings.ContainsFunc(reason, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return answer.BadField(http.StatusBadRequest, "reason", answer.Excerpt(reason), acceptedReason)
	}
	return nil
}

// Results of what had nothing to change.
const (
	notLocked     = "it was not locked out"
	notOverridden = "there was no override"
)

// unlock serves POST admin.UnlockPath.
func (h *Handler) unlock(q *call) (any, *answer.Problem) {
	return h.end(q, "unlock", notLocked, (*policy.Engine).Unlock)
}

// restore serves POST admin.RestorePath.
func (h *Handler) restore(q *call) (any, *answer.Problem) {
	return h.end(q, "restore", notOverridden, (*policy.Engine).Restore)
}

// end returns a POST that ends what holds for a key. Its result is nothing where there was none of it.
func (h *Handler) end(
	q *call, action, nothing string, ended func(e *policy.Engine, policy, key string) bool,
) (any, *answer.Problem) {
	c, p := h.change(q.r)
	if p != nil {
		return nil, p
	}
	changed := false
	p = h.o.Audit.Change(adminguard.CallerOf(q.r), entryOf(action, &c), func(e *operator.AuditEntry) *answer.Problem {
		if changed = ended(h.o.Limits.Engine(), c.Policy, c.Key); !changed {
			e.Result = nothing
		}
		return nil
	})
	return operator.Changed{Changed: changed, Replicas: operator.ThisReplica}, p
}

// entryOf is a change as the audit log has it.
func entryOf(action string, c *operator.Change) operator.AuditEntry {
	return operator.AuditEntry{Action: action, Policy: c.Policy, Key: c.Key, Reason: c.Reason}
}

// reset serves POST admin.ResetPath.
func (h *Handler) reset(q *call) (any, *answer.Problem) {
	c, p := h.change(q.r)
	if p != nil {
		return nil, p
	}
	p = h.o.Audit.Change(adminguard.CallerOf(q.r), entryOf("reset", &c), func(*operator.AuditEntry) *answer.Problem {
		return h.failed(h.o.Limits.Engine().Reset(q.r.Context(), c.Policy, c.Key))
	})
	replicas := operator.ThisReplica
	if _, kept := h.o.Limits.Engine().StoredCharges(c.Policy, c.Key); kept {
		replicas = operator.AllReplicas
	}
	return operator.Changed{Changed: true, Replicas: replicas}, p
}

// reload serves POST admin.ReloadPath.
func (h *Handler) reload(q *call) (any, *answer.Problem) {
	var c operator.Change
	if _, p := body(q.r, &c); p != nil {
		return nil, p
	}
	if c.Policy != "" || c.Key != "" {
		return nil, answer.BadField(http.StatusBadRequest, inPolicy, answer.Excerpt(c.Policy),
			"must not be there: all policies are read again")
	}
	if p := checkReason(c.Reason); p != nil {
		return nil, p
	}
	return checkapi.Reload(h.o.Limits, h.o.Audit, adminguard.CallerOf(q.r), c.Reason)
}

// override serves POST admin.OverridePath.
func (h *Handler) override(q *call) (any, *answer.Problem) {
	var asked operator.Override
	text, p := body(q.r, &asked)
	asked.Key = operator.KeyOf(asked.Key)
	if p == nil {
		p = h.checkChange(asked.Policy, asked.Key, asked.Reason)
	}
	if p == nil {
		p = h.keyGiven(asked.Policy, text)
	}
	if p != nil {
		return nil, p
	}
	switch {
	case asked.By != "" || !asked.Since.IsZero():
		return nil, answer.BadField(http.StatusBadRequest, "by", answer.Excerpt(asked.By),
			"must not be there, nor since: the server knows")
	case asked.Unlimited == (len(asked.Limits) > 0):
		return nil, answer.BadField(http.StatusBadRequest, "limits", "", "must be there, or unlimited true, and not both")
	case !(asked.For >= operator.ShortestOverride.Seconds() && asked.For <= operator.LongestOverride.Seconds()):
		return nil, answer.BadField(http.StatusBadRequest, "for", fmt.Sprint(asked.For), "must be from 1 to 316224000 seconds")
	}
	o := &policy.Override{
		Policy: asked.Policy, Key: asked.Key, Unlimited: asked.Unlimited, Reason: asked.Reason, By: adminguard.CallerOf(q.r).Who,
		For: time.Duration(asked.For * float64(time.Second)),
	}
	if !asked.Unlimited {
		if o.Limits, p = h.overriding(asked.Policy, asked.Key, asked.Limits); p != nil {
			return nil, p
		}
	}
	p = h.o.Audit.Change(adminguard.CallerOf(q.r), operator.AuditEntry{
		Action: "override", Policy: asked.Policy, Key: asked.Key, Detail: h.o.Limits.Clean(detailOf(o)), Reason: asked.Reason,
	}, func(*operator.AuditEntry) *answer.Problem { return h.failed(h.o.Limits.Engine().Override(o)) })
	return operator.Changed{Changed: true, Replicas: operator.ThisReplica}, p
}

// detailOf is an override in words.
func detailOf(o *policy.Override) string {
	text := "unlimited"
	if !o.Unlimited {
		all := make([]string, 0, len(o.Limits))
		for i := range o.Limits {
			one := o.Limits[i].String()
			if len(o.Limits) > 1 {
				one = o.Limits[i].Name + " " + one
			}
			all = append(all, one)
		}
		text = strings.Join(all, "; ")
	}
	return text + " for " + inwords.Short(o.For)
}

// overriding are the limits of a key of a policy with those in place of them that were asked for.
func (h *Handler) overriding(name, key string, asked map[string]string) ([]policy.Limit, *answer.Problem) {
	of := h.o.Limits.Policy(name)
	if of == nil {
		return nil, h.policyNamed(name)
	}
	limits := slices.Clone(of.Limits)
	names := make([]string, len(limits))
	own := of.Keys[h.o.Limits.Engine().CountedKey(name, key)]
	if own == nil {
		own = of.Keys[key]
	}
	for i := range limits {
		names[i] = limits[i].Name
		if own != nil {
			limits[i].Limit = own[i].Limit
		}
	}
	if own == nil && of.TierBy != nil && len(asked) < len(limits) { // whose tier is not known without a request
		return nil, answer.BadField(http.StatusBadRequest, "limits", "", fmt.Sprintf(
			"must have all limits of policy %s, as those of the tier cannot stay: %s", name, strings.Join(names, ", ")))
	}
	if _, unnamed := asked[""]; unnamed && len(limits) == 1 && len(asked) > 1 { // both names are those of one limit
		return nil, answer.BadField(http.StatusBadRequest, "limits", "",
			"must have one member, as the policy has one limit: either \"\" or its name")
	}
	for of, text := range asked {
		i := slices.Index(names, of)
		if of == "" && len(limits) == 1 {
			i = 0
		}
		if i < 0 {
			return nil, noLimit(name, of, text, names)
		}
		limit, err := parseLimit(text, limits[i].Limit)
		if err != nil {
			field := strings.TrimSuffix("limits."+of, ".")
			if wrong, ok := errors.AsType[*limitError](err); ok {
				return nil, answer.BadField(http.StatusBadRequest, field, answer.Excerpt(text), wrong.accepted)
			}
			if wrong, ok := errors.AsType[*weir.OptionError](err); ok {
				must := "must be "
				if limits[i].Algorithm() == weir.AlgorithmTokenBucket && wrong.Option == "Limit.Burst" {
					must = "the burst must be "
				}
				return nil, answer.BadField(http.StatusBadRequest, field, answer.Excerpt(text), must+wrong.Accepted)
			}
			return nil, answer.BadField(http.StatusBadRequest, field, answer.Excerpt(text),
				strings.TrimPrefix(err.Error(), "weir: "))
		}
		limits[i].Limit = limit
	}
	return limits, nil
}

// noLimit is the problem with a limit whose name none of the policy has.
func noLimit(policyName, of, text string, names []string) *answer.Problem {
	if of == "" {
		return answer.BadField(http.StatusBadRequest, "limits", answer.Excerpt(text), fmt.Sprintf(
			"must have the name of the limit that it is for, as policy %s has several: %s", policyName,
			strings.Join(names, ", ")))
	}
	return answer.BadField(http.StatusBadRequest, "limits", answer.Excerpt(of), fmt.Sprintf(
		"must be the name of a limit of policy %s: %s", policyName, strings.Join(names, ", ")))
}

// overrides serves GET admin.OverridesPath.
func (h *Handler) overrides(_ *call) (any, *answer.Problem) {
	overrides := h.o.Limits.Engine().Overrides()
	all := make([]operator.Override, 0, len(overrides))
	for _, o := range overrides {
		all = append(all, overrideOf(&o))
	}
	return all, nil
}

func overrideOf(o *policy.Override) operator.Override {
	a := operator.Override{
		Policy: o.Policy, Key: operator.SpellKey(o.Key), Unlimited: o.Unlimited, For: operator.SecondsOf(o.For),
		Reason: o.Reason, By: o.By, Since: o.Since.UTC(),
	}
	if len(o.Limits) > 0 {
		a.Limits = make(map[string]string, len(o.Limits))
		for i := range o.Limits {
			a.Limits[o.Limits[i].Name] = o.Limits[i].String()
		}
	}
	return a
}
