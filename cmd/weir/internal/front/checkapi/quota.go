package checkapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

const (
	// usualTrail is how many adjustments are returned by default, mostTrail is the max.
	usualTrail = 100
	mostTrail  = 1000

	acceptedPermits = "must be a whole number other than 0, from -10^15 to 10^15: more than 0 gives permits back, less takes them"
	acceptedSign    = "must be a text of 1 to 256 bytes that can be printed"
)

// Quotas are the limits of durability cluster and file, as an operator sees them.
type Quotas interface {
	store.Home
	// Adjust is [durable.Node.Adjust].
	Adjust(ctx context.Context, l weir.Limit, a durable.Adjustment) (durable.Adjustment, error)
	// Adjustments is [durable.Node.Adjustments].
	Adjustments(ctx context.Context, policy, key string, most int) ([]durable.Adjustment, error)
}

// quotaLimit is a limit of a policy with what it is charged to.
type quotaLimit struct {
	name   string // policy/limit
	limit  policy.Limit
	charge store.Charge
}

// limitsOf are the limits that a name means: those of a policy, or the one that is named policy/limit.
func (h *Handler) limitsOf(name, key string) ([]quotaLimit, *answer.Problem) {
	of, one, single := strings.Cut(name, "/")
	p := h.limits.Policy(of)
	if p == nil {
		return nil, unknownPolicy([]byte(of), h.limits.PolicyNames())
	}
	charges, ok := h.limits.Engine().StoredCharges(of, key)
	if p.Durability == policy.DurabilityMemory || !ok || len(charges) != len(p.Limits) || h.quotas == nil {
		return nil, problemOf(http.StatusUnprocessableEntity, &fault{
			field: policyName, value: excerpt([]byte(of)), wrong: "its durability is " + p.Durability.String(),
			accepted: "must be a policy of durability cluster or file, whose quotas survive and can be adjusted",
		})
	}
	var all []quotaLimit
	names := make([]string, len(p.Limits))
	for i := range p.Limits {
		names[i] = of + "/" + p.Limits[i].Name
		if !single || p.Limits[i].Name == one {
			all = append(all, quotaLimit{names[i], p.Limits[i], charges[i]})
		}
	}
	if len(all) == 0 {
		return nil, problemOf(http.StatusNotFound, &fault{
			field: policyName, value: excerpt([]byte(name)), wrong: "there is no such limit",
			accepted: "must be one of: " + strings.Join(names, ", "),
		})
	}
	return all, nil
}

// asked reads the parameters of a page about the limits of a key, which is spelled as in the admin API.
func (h *Handler) asked(
	r *http.Request, accepted ...string,
) (limits []quotaLimit, key string, values url.Values, p *answer.Problem) {
	if values, p = answer.Parameters(r, append(accepted, policyName, keyName)...); p != nil {
		return nil, "", nil, p
	}
	key = operator.KeyOf(values.Get(keyName))
	if p = ofKey(values.Get(policyName), key); p == nil {
		limits, p = h.limitsOf(values.Get(policyName), key)
	}
	return limits, key, values, p
}

// ofKey is what is wrong with a question about limits of a key, nil if nothing is.
func ofKey(name, key string) *answer.Problem {
	if name == "" {
		return answer.BadField(http.StatusBadRequest, policyName, "", "must be the name of a policy, or policy/limit")
	}
	return adminguard.WrongKey(key)
}

// quota serves GET /v1/quota.
func (h *Handler) quota(w http.ResponseWriter, r *http.Request) *answer.Problem {
	limits, key, _, p := h.asked(r)
	if p != nil {
		return p
	}
	name, _, _ := strings.Cut(limits[0].name, "/")
	reply := operator.Quota{Policy: name, Key: operator.SpellKey(key)}
	for i := range limits {
		l := &limits[i]
		state, err := store.Inspect(r.Context(), h.quotas, l.charge)
		if err != nil {
			return h.quotaProblem(err)
		}
		reply.Limits = append(reply.Limits, h.quotaOf(l, &state))
	}
	return answer.WriteJSON(w, &reply)
}

// quotaOf is what is told of a limit.
func (h *Handler) quotaOf(l *quotaLimit, state *store.State) operator.QuotaLimit {
	d := &state.Decision
	told := operator.QuotaLimit{
		Limit: l.name, Rule: h.limits.Clean(l.limit.String()),
		Permits: d.Limit, Remaining: d.Remaining, Reserved: state.Reserved, Used: max(0, d.Limit-d.Remaining-state.Reserved),
		ResetAfter: appendSeconds(nil, d.ResetAfter),
	}
	if d.ResetAfter > 0 && d.ResetAfter != weir.Never {
		at := time.Now().Add(d.ResetAfter).Round(time.Millisecond).UTC()
		told.ResetsAt = &at
	}
	return told
}

// adjustBody is the body of an adjustment.
type adjustBody struct {
	Policy  string `json:"policy"`
	Key     string `json:"key"`
	Permits int64  `json:"permits"`
	By      string `json:"by"`
	Reason  string `json:"reason"`
}

// check finds what is wrong with it.
func (b *adjustBody) check() *answer.Problem {
	switch {
	case b.Permits == 0 || b.Permits > maxCost || b.Permits < -maxCost:
		return answer.BadField(http.StatusBadRequest, "permits", strconv.FormatInt(b.Permits, 10), acceptedPermits)
	case !isSign(b.By):
		return answer.BadField(http.StatusBadRequest, "by", answer.Excerpt(b.By), acceptedSign)
	case !isSign(b.Reason):
		return answer.BadField(http.StatusBadRequest, "reason", answer.Excerpt(b.Reason), acceptedSign)
	}
	return ofKey(b.Policy, b.Key)
}

// isSign reports whether a text can be the author or the reason of an adjustment: it is shown in terminals.
func isSign(s string) bool {
	const most = 256
	return s != "" && len(s) <= most && utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// adjust serves POST /v1/quota/adjust.
func (h *Handler) adjust(w http.ResponseWriter, r *http.Request, _ *exchange) *answer.Problem {
	var body adjustBody
	p := contentProblem(r)
	if p == nil {
		_, p = answer.Body(r, &body)
		body.Key = operator.KeyOf(body.Key)
	}
	if p == nil {
		p = body.check()
	}
	if p != nil {
		return p
	}
	limits, p := h.limitsOf(body.Policy, body.Key)
	if p != nil {
		return p
	}
	if len(limits) > 1 {
		names := make([]string, len(limits))
		for i := range limits {
			names[i] = limits[i].name
		}
		return problemOf(http.StatusBadRequest, &fault{
			field: policyName, value: excerpt([]byte(body.Policy)), wrong: "it has several limits",
			accepted: "must be one of: " + strings.Join(names, ", "),
		})
	}
	l := &limits[0]
	if l.charge.Limit.Algorithm() == weir.AlgorithmConcurrency {
		return problemOf(http.StatusBadRequest, &fault{
			field: policyName, value: excerpt([]byte(l.name)), wrong: "its permits come back when a request ends",
			accepted: "must be a limit whose permits come back with time",
		})
	}
	var done durable.Adjustment
	p = h.audit.Change(adminguard.CallerOf(r), operator.AuditEntry{
		Action: "quota-adjust", Policy: l.name, Key: body.Key, Reason: body.Reason,
		Detail: fmt.Sprintf("%+d permits, by %s", body.Permits, body.By),
	}, func(*operator.AuditEntry) *answer.Problem {
		var err error
		if done, err = h.quotas.Adjust(r.Context(), l.charge.Limit, durable.Adjustment{
			Policy: l.charge.Policy, Key: l.charge.Key, Permits: body.Permits, By: body.By, Reason: body.Reason,
		}); err != nil {
			return h.quotaProblem(err)
		}
		return nil
	})
	if p != nil {
		return p
	}
	return answer.WriteJSON(w, adjustmentOf(l, body.Key, &done))
}

func adjustmentOf(l *quotaLimit, key string, a *durable.Adjustment) operator.Adjustment {
	return operator.Adjustment{
		Time: a.Time.UTC(), Limit: l.name, Key: operator.SpellKey(key), Permits: a.Permits, Remaining: a.Remaining,
		By: a.By, Reason: a.Reason,
	}
}

// adjustments serves GET /v1/quota/adjustments.
func (h *Handler) adjustments(w http.ResponseWriter, r *http.Request) *answer.Problem {
	limits, key, values, p := h.asked(r, "limit")
	if p != nil {
		return p
	}
	most, p := answer.Count(values, "limit", usualTrail, mostTrail)
	if p != nil {
		return p
	}
	all := make([]operator.Adjustment, 0, most)
	for i := range limits {
		l := &limits[i]
		some, err := h.quotas.Adjustments(r.Context(), l.charge.Policy, l.charge.Key, most)
		if err != nil {
			return h.quotaProblem(err)
		}
		for j := range some {
			all = append(all, adjustmentOf(l, key, &some[j]))
		}
	}
	slices.SortStableFunc(all, func(a, b operator.Adjustment) int { return b.Time.Compare(a.Time) })
	name, _, _ := strings.Cut(limits[0].name, "/")
	return answer.WriteJSON(w, operator.QuotaHistory{
		Policy: name, Key: operator.SpellKey(key), Adjustments: all[:min(len(all), most)],
	})
}

// quotaProblem is why the owner of the limits has not answered.
func (h *Handler) quotaProblem(err error) *answer.Problem {
	text := strings.TrimPrefix(h.limits.Clean(err.Error()), "weir: ")
	if _, wrong := errors.AsType[*weir.OptionError](err); wrong {
		return &answer.Problem{Status: http.StatusUnprocessableEntity, Detail: text}
	}
	return answer.Later("%s", text)
}
