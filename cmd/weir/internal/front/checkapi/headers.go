package checkapi

import (
	"net/http"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/policies"
	"github.com/weirhq/weir/httplimit"
)

// fields writes the RateLimit fields of the current draft.
var fields httplimit.Headers

// tellable prepares a policy for the header fields.
func tellable(p policies.Policy) (*httplimit.Policies, error) {
	quota, window := p.Limiter.Quota()
	return httplimit.NewPolicies(httplimit.Policy{Name: p.Name, Quota: quota, Window: window})
}

// tell sets the header fields about d.
func tell(h http.Header, told *httplimit.Policies, d weir.Decision) {
	state := httplimit.State{Remaining: d.Remaining, Reset: d.ResetAfter}
	if d.Allowed {
		fields.SetAdmitted(h, told, state)
	} else {
		fields.SetRefused(h, told, d.RetryAfter, state)
	}
}
