package httplimit

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// GateOptions configure a [Gate]. Engine is required.
type GateOptions struct {
	// Engine decides: its rules choose the limits of a request. Required.
	Engine *policy.Engine
	// Clients finds the address of the client. Default: that of the peer, and no header field is believed.
	Clients *clientip.Resolver
	// Routes is the ServeMux behind the gate, for rules with a route: the gate asks it for the pattern that it will choose.
	// Inside of a ServeMux the pattern is known. Default: nil, requests have no route before a ServeMux has chosen one.
	Routes *http.ServeMux
	// Route returns the route, for other routers. It excludes Routes. Default: nil, the Pattern of the request.
	Route func(*http.Request) string
	// Attributes returns what else rules may ask for, such as the user of a token. Default: nil, nothing.
	Attributes func(*http.Request) map[string]string
	// Cost is how many permits a request costs where neither its rule nor the policy has a cost. A request that costs 0 is
	// allowed, whatever the state of its limits, unless a rule denies it. A negative cost is a programming error: it is logged,
	// and the status is 500. Default: every request costs 1.
	Cost func(*http.Request) int64
	// Reserve reserves the cost of a request, which its handler may settle by [Reservation]. Default: false, what a request
	// costs is known when it comes.
	Reserve bool
	// Wait lets requests wait in the queues of their policies, as long as those allow, instead of being refused at once. If a
	// client goes away while it waits, the handler is not called, and the response, which is not received, has status 499.
	// Default: false.
	Wait bool
	// MaxWait is a further bound of that, from 1 ms. Default: 0, no further bound. It needs Wait.
	MaxWait time.Duration
	// Skip reports whether a request is not limited, and its response has no fields. Default: none.
	Skip func(*http.Request) bool
	// Status is the status code of refusals: from 400 to 599. Default: 429 (Too Many Requests) if the client used up its limit,
	// 503 (Service Unavailable) if the server has no permits for any client. A request that a rule denies has 403 (Forbidden)
	// whatever Status is; OnRefused can change it.
	Status int
	// OnRefused is called with each refusal before it is written, and may change it. Default: nil.
	OnRefused func(*http.Request, *Refusal)
	// Units are what policies count, by their names, where that is not requests: "content-bytes", "tokens". Clients are told so.
	Units map[string]ratelimitfields.Unit
	// Headers are how limits are told. Default: the fields of the current draft.
	Headers ratelimitfields.Headers
	// Logger logs the requests that could not be decided because an option is misused. Refusals are not logged. Default: nil,
	// nothing is logged.
	Logger *slog.Logger
}

func (o *GateOptions) check() error {
	const of = "GateOptions."
	switch {
	case o.Engine == nil:
		return optionError(of+"Engine", "nil", "an engine")
	case o.Route != nil && o.Routes != nil:
		return optionError(of+"Route", "set beside Routes", "the only one of the two")
	case o.MaxWait != 0 && o.MaxWait < time.Millisecond:
		return optionError(of+"MaxWait", o.MaxWait.String(), "from 1ms, or 0 for no further bound")
	case o.MaxWait != 0 && !o.Wait:
		return optionError(of+"MaxWait", o.MaxWait.String(), "0 without Wait")
	case o.Status != 0 && (o.Status < 400 || o.Status > 599):
		return statusError(of+"Status", o.Status)
	}
	for name, unit := range o.Units {
		if _, err := ratelimitfields.NewPolicies(ratelimitfields.Policy{Name: name, Unit: unit}); err != nil {
			return fmt.Errorf("weir: httplimit: %sUnits[%.80q]: %w", of, name, err)
		}
	}
	return o.Headers.Check()
}
