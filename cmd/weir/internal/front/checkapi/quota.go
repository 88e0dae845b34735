package checkapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	// usualTrail is how many adjustments are told if nobody says how many, mostTrail is the most.
	usualTrail = 100
	mostTrail  = 1000

	maxKey = 1024

	acceptedPermits = "must be a whole number other than 0, from -10^15 to 10^15: more than 0 gives permits back, less takes them"
	acceptedSign    = "must be a text of 1 to 256 bytes that can be printed"
	acceptedOptKey  = `must be a string of at most 1024 bytes, where \xe9 is the byte e9 of a key that is not UTF-8`
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
	set := h.limits.Engine().Set()
	at := slices.IndexFunc(set.Policies, func(p policy.Policy) bool { return p.Name == of })
	if at < 0 {
		return nil, unknownPolicy([]byte(of), h.policyNames())
	}
	p := &set.Policies[at]
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

// asked reads the parameters of a page, of which policy is required. A key is that which is spelled so, as in the admin API.
func asked(r *http.Request, accepted ...string) (url.Values, *answer.Problem) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, newProblem(http.StatusBadRequest, "query", excerpt([]byte(r.URL.RawQuery)),
			"must be parameters such as policy=tenant&key=acme")
	}
	for name, all := range values {
		if !slices.Contains(accepted, name) {
			return nil, newProblem(http.StatusBadRequest, "parameter", excerpt([]byte(name)),
				"must be "+strings.Join(accepted, ", "))
		}
		if len(all) != 1 {
			return nil, newProblem(http.StatusBadRequest, name, "", "must be there once")
		}
	}
	if values.Get(policyName) == "" {
		return nil, newProblem(http.StatusBadRequest, policyName, "", "must be the name of a policy, or policy/limit")
	}
	key := operator.KeyOf(values.Get(keyName))
	if len(key) > maxKey {
		return nil, newProblem(http.StatusBadRequest, keyName, excerpt([]byte(key)), acceptedOptKey)
	}
	values.Set(keyName, key)
	return values, nil
}

// quota serves GET /v1/quota.
func (h *Handler) quota(w http.ResponseWriter, r *http.Request) *answer.Problem {
	values, p := asked(r, policyName, keyName)
	if p != nil {
		return p
	}
	key := values.Get(keyName)
	limits, p := h.limitsOf(values.Get(policyName), key)
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
	return writeJSON(w, &reply)
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
	case b.Policy == "":
		return newProblem(http.StatusBadRequest, policyName, "", "must be the name of a policy, or policy/limit")
	case len(b.Key) > maxKey:
		return newProblem(http.StatusBadRequest, keyName, excerpt([]byte(b.Key)), acceptedOptKey)
	case b.Permits == 0 || b.Permits > maxCost || b.Permits < -maxCost:
		return newProblem(http.StatusBadRequest, "permits", strconv.FormatInt(b.Permits, 10), acceptedPermits)
	case !isSign(b.By):
		return newProblem(http.StatusBadRequest, "by", excerpt([]byte(b.By)), acceptedSign)
	case !isSign(b.Reason):
		return newProblem(http.StatusBadRequest, "reason", excerpt([]byte(b.Reason)), acceptedSign)
	}
	return nil
}

// isSign reports whether a text can say who adjusts a quota, or why: it is shown in terminals.
func isSign(s string) bool {
	const most = 256
	return s != "" && len(s) <= most && utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// adjust serves POST /v1/quota/adjust.
func (h *Handler) adjust(w http.ResponseWriter, r *http.Request, _ *exchange) *answer.Problem {
	if p := contentProblem(r); p != nil {
		return p
	}
	body, p := readAdjust(r)
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
	entry := adjustEntry(r, l, &body)
	if p := Begin(h.audit, &entry); p != nil {
		return p
	}
	done, err := h.quotas.Adjust(r.Context(), l.charge.Limit, durable.Adjustment{
		Policy: l.charge.Policy, Key: l.charge.Key, Permits: body.Permits, By: body.By, Reason: body.Reason,
	})
	h.noteAdjust(entry, err)
	if err != nil {
		return h.quotaProblem(err)
	}
	return writeJSON(w, adjustmentOf(l, body.Key, &done))
}

// adjustEntry says who adjusts a quota.
func adjustEntry(r *http.Request, l *quotaLimit, body *adjustBody) operator.AuditEntry {
	by := adminguard.CallerOf(r)
	return operator.AuditEntry{
		Who: by.Who, From: by.From, Action: "quota-adjust", Policy: l.name, Key: operator.SpellKey(body.Key), Reason: body.Reason,
		Detail: fmt.Sprintf("%+d permits, by %s", body.Permits, body.By),
	}
}

// noteAdjust notes what became of it.
func (h *Handler) noteAdjust(entry operator.AuditEntry, err error) {
	if h.audit == nil {
		return
	}
	entry.Result = adminguard.AuditOK
	if err != nil {
		entry.Result = strings.TrimPrefix(h.limits.Clean(err.Error()), "weir: ")
	}
	h.audit.Add(entry)
}

// readAdjust reads the body of an adjustment, and checks it.
func readAdjust(r *http.Request) (body adjustBody, wrong *answer.Problem) {
	text, wrong := readBody(r, nil, maxBody)
	if wrong == nil && !utf8.Valid(text) {
		wrong = &answer.Problem{
			Status: http.StatusBadRequest, Detail: `the body must be UTF-8: of a key that is not, the byte e9 is "\\xe9"`,
		}
	}
	if wrong == nil {
		wrong = decodeAdjust(text, &body)
		body.Key = operator.KeyOf(body.Key)
	}
	if wrong == nil {
		wrong = body.check()
	}
	return body, wrong
}

// decodeAdjust decodes the body of an adjustment, strictly.
func decodeAdjust(text []byte, into *adjustBody) *answer.Problem {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err == nil {
		if _, after := decoder.Token(); !errors.Is(after, io.EOF) {
			err = errors.New("expected nothing after the object")
		}
	}
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && kind.Field == "permits" {
		return newProblem(http.StatusBadRequest, "permits", kind.Value, acceptedPermits)
	}
	if err != nil {
		return &answer.Problem{
			Status: http.StatusBadRequest,
			Detail: "the body must be a JSON object with policy, key, permits, by and reason: " +
				strings.TrimPrefix(err.Error(), "json: "),
		}
	}
	return nil
}

func adjustmentOf(l *quotaLimit, key string, a *durable.Adjustment) operator.Adjustment {
	return operator.Adjustment{
		Time: a.Time.UTC(), Limit: l.name, Key: operator.SpellKey(key), Permits: a.Permits, Remaining: a.Remaining,
		By: a.By, Reason: a.Reason,
	}
}

// adjustments serves GET /v1/quota/adjustments.
func (h *Handler) adjustments(w http.ResponseWriter, r *http.Request) *answer.Problem {
	values, p := asked(r, policyName, keyName, "limit")
	if p != nil {
		return p
	}
	most := usualTrail
	if text := values.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > mostTrail {
			return newProblem(http.StatusBadRequest, "limit", excerpt([]byte(text)),
				fmt.Sprintf("must be a whole number from 1 to %d", mostTrail))
		}
		most = n
	}
	key := values.Get(keyName)
	limits, p := h.limitsOf(values.Get(policyName), key)
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
	return writeJSON(w, operator.QuotaHistory{
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
