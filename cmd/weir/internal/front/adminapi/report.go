package adminapi

import (
	"bytes"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

const topKeys = 20

// report serves GET admin.ReportPath.
func (h *Handler) report(q *call) (any, *answer.Problem) {
	name := q.values.Get(inPolicy)
	if set := h.o.Limits.Engine().Set(); name == "" && len(set.Policies) == 1 {
		name = set.Policies[0].Name
	}
	if p := h.policyNamed(name); p != nil {
		return nil, p
	}
	top, err := h.o.Limits.Engine().Top(q.r.Context(), name, topKeys)
	if err != nil {
		return nil, h.failed(err)
	}
	report := operator.Report{Time: time.Now().UTC(), Top: h.keysOf(top)}
	status := h.o.Limits.Status()
	for _, one := range h.policiesOf(&status) {
		if one.Name == name {
			report.Policy = one
		}
	}
	if strings.Contains(q.r.Header.Get("Accept"), "application/json") {
		return &report, nil
	}
	var text bytes.Buffer
	operator.WriteReport(&text, terminal.Output{}, &report)
	answer.Write(q.w, "text/plain; charset=utf-8", text.Bytes())
	return nil, nil
}
