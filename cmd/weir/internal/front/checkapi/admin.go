package checkapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/config/yamlread"
)

// explain serves POST /v1/explain. Nothing is taken anyway.
func (h *Handler) explain(w http.ResponseWriter, r *http.Request, x *exchange) *answer.Problem {
	x.question.described = &x.described
	if p := ask(r, x, &describedDialect, &x.described); p != nil {
		return p
	}
	set, byDescriptors := h.limits.Engine().Set(), h.limits.Extra() != nil // of --ratelimit-config
	if byDescriptors && (x.described.Protocol == "rls" || len(set.Rules) == 0) {
		return answer.PlainProblem(http.StatusConflict, "the limits of --ratelimit-config apply to descriptors, and not to "+
			"requests: \"weir admin key WORD\" shows what is left of a value, and \"weir admin refusals\" which have refused")
	}
	e := h.limits.Explain(&x.described.Request)
	return answer.WriteJSON(w, operator.ExplanationOf(&e))
}

// Explain serves a request that describes another one with why that would be answered as it is. It does not look at who asks.
func (h *Handler) Explain(w http.ResponseWriter, r *http.Request) {
	x := begin()
	defer x.end()
	if p := h.explain(w, r, x); p != nil {
		p.Write(w)
	}
}

// status serves GET /v1/status.
func (h *Handler) status(w http.ResponseWriter, _ *http.Request) *answer.Problem {
	status := h.limits.Status()
	for i := range status.Policies {
		status.Policies[i].Difference = operator.SpellDifference(status.Policies[i].Difference)
	}
	text, err := json.Marshal(status)
	if err != nil {
		return &answer.Problem{Status: http.StatusInternalServerError, Detail: err.Error()}
	}
	all := map[string]any{"rejected": h.Rejected(), "reservations": h.holds.Len()}
	if h.extra != nil {
		maps.Copy(all, h.extra())
	}
	more, err := json.Marshal(all)
	if err != nil {
		return &answer.Problem{Status: http.StatusInternalServerError, Detail: err.Error()}
	}
	text = append(append(text[:len(text)-1], ','), more[1:]...)
	return answer.WriteJSON(w, json.RawMessage(text))
}

// reload serves POST /v1/reload.
func (h *Handler) reload(w http.ResponseWriter, r *http.Request, _ *exchange) *answer.Problem {
	changed, p := Reload(h.limits, h.audit, adminguard.CallerOf(r), "")
	if p != nil {
		return p
	}
	return answer.WriteJSON(w, struct {
		Version uint64 `json:"version"`
		Changes int    `json:"changes"`
	}{changed.Version, changed.Changes})
}

// Reload reads a configuration again for a caller.
func Reload(
	limits *live.Limits, log *adminguard.AuditLog, by adminguard.Caller, reason string,
) (changed operator.Changed, wrong *answer.Problem) {
	wrong = log.Change(by, operator.AuditEntry{Action: "reload", Reason: reason}, func(e *operator.AuditEntry) *answer.Problem {
		changes, err := limits.Reload(APICause)
		version := limits.Engine().Report().Version
		changed = operator.Changed{Changed: changes > 0, Version: version, Changes: changes}
		switch {
		case errors.Is(err, live.ErrFixed):
			return answer.PlainProblem(http.StatusConflict, "%s", strings.TrimPrefix(err.Error(), "weir: "))
		case err != nil:
			p := answer.PlainProblem(http.StatusUnprocessableEntity,
				"the configuration cannot be used, the one before stays in force")
			p.Mistakes = limits.Status().Mistakes
			if _, ok := errors.AsType[*yamlread.Errors](err); !ok {
				p.Detail += ": " + strings.TrimPrefix(p.Mistakes[0], "weir: ")
			}
			return p
		}
		e.Detail = fmt.Sprintf("version %d, %s", version, terminal.Plural(changes, "change", "changes"))
		return nil
	})
	return changed, wrong
}

// APICause is the cause of reloads that a request to a page has caused.
const APICause = "API"
