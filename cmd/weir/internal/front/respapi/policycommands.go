package respapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/cmd/weir/internal/front/holds"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/resp"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/policy"
)

// policyCommands answer for the policies of the configuration.
type policyCommands struct {
	limits    *live.Limits
	holds     *holds.Holds
	exchanges sync.Pool
	waiting   *holds.Waiting
}

func newPolicyCommands(o Options) *policyCommands {
	p := &policyCommands{limits: o.Limits, holds: o.Holds, waiting: holds.NewWaiting()}
	p.exchanges.New = func() any { return new(policyExchange) }
	return p
}

// policyExchange is the memory of one decision.
type policyExchange struct {
	request policy.Request
	named   policy.Named // of request
	verdict policy.Verdict
}

func (p *policyCommands) commands() []command {
	usage := func(s *spec) string {
		return "ERR wrong number of arguments for '" + s.name + "' command: must be " +
			strings.ToUpper(s.name) + " " + s.arguments
	}
	return grouped("policy", usage,
		spec{
			"weir.take", -3, write, 2, "policy key [cost] [CHARGE before|afterwards] [WAIT milliseconds]",
			"Takes permits of a key under a policy",
			func(c *conn, w *resp.Writer, args [][]byte) { p.take(c.s.ctx, c, w, args) },
		},
		spec{
			"weir.peek", -3, readonly, 2, "policy key [cost]", "Answers what WEIR.TAKE would, and takes nothing", without(p.peek),
		},
		spec{
			"weir.takeall", -4, write, 2, "policy key cost [policy key cost ...]",
			"Takes permits under several policies, or none", without(p.takeAll),
		},
		spec{
			"weir.reserve", -4, write, 2, "policy key cost [EXPIRE milliseconds] [WAIT milliseconds]",
			"Takes permits whose number is settled later",
			func(c *conn, w *resp.Writer, args [][]byte) { p.reserve(c.s.ctx, c, w, args) },
		},
		spec{"weir.commit", -2, write, 0, "id [actual]", "Ends a reservation with what it really cost", p.commit},
		spec{"weir.cancel", 2, write, 0, "id", "Ends a reservation as if it had never been made", p.cancel},
		spec{"weir.refund", 4, write, 2, "policy key n", "Gives permits of a key back", without(p.refund)},
		spec{"weir.reset", 3, write, 2, "policy key", "Makes all permits of a key available", without(p.reset)},
		spec{"weir.unlock", 3, write, 2, "policy key", "Ends the lockout of a key", p.unlock},
	)
}

// ask makes request one for permits of a key of a policy.
func (x *policyExchange) ask(ctx context.Context, name, key []byte, cost int64) {
	x.named = policy.Named{Policy: name, Key: key, Cost: cost}
	x.request = policy.Request{Named: &x.named, Context: ctx}
}

func (p *policyCommands) exchange() *policyExchange {
	x, _ := p.exchanges.Get().(*policyExchange)
	return x
}

// end settles a decision and keeps the memory for another one.
func (p *policyCommands) end(x *policyExchange) {
	x.verdict.Release()
	x.named, x.request = policy.Named{}, policy.Request{}
	p.exchanges.Put(x)
}

// take serves WEIR.TAKE policy key [cost] [CHARGE before|afterwards] [WAIT milliseconds].
func (p *policyCommands) take(ctx context.Context, from patient, w *resp.Writer, args [][]byte) {
	p.decide(ctx, from, w, args, takeOptions)
}

// peek serves WEIR.PEEK policy key [cost].
func (p *policyCommands) peek(ctx context.Context, w *resp.Writer, args [][]byte) {
	p.decide(ctx, nil, w, args, peekOptions)
}

// decide decides on one request, or only looks, as the options say.
func (p *policyCommands) decide(ctx context.Context, from patient, w *resp.Writer, args [][]byte, o *options) {
	a := asked{policy: args[1], key: args[2], cost: 1}
	if wrong := p.read(&a, args[3:], o); wrong != "" {
		w.Error(wrong)
		return
	}
	x := p.exchange()
	defer p.end(x)
	x.ask(ctx, a.policy, a.key, a.cost)
	x.named.Afterwards = a.afterwards
	v, r := &x.verdict, &x.request
	switch {
	case a.cost == 0 || o == peekOptions:
		p.limits.Engine().Peek(r, v)
	case a.wait == 0:
		p.limits.Engine().Take(r, v)
	case !p.wait(ctx, from, a.wait, r, v, p.limits.Engine().Wait):
		w.Error(goneError)
		return
	}
	p.tell(w, v, a.policy)
}

// tell writes the decision that binds, or that the policy was removed after it was looked for.
func (p *policyCommands) tell(w *resp.Writer, v *policy.Verdict, name []byte) {
	if v.Unknown(0) {
		w.Error(p.noPolicy(name))
		return
	}
	tellVerdict(w, v, name)
}

// takeAll serves WEIR.TAKEALL policy key cost [policy key cost ...].
func (p *policyCommands) takeAll(ctx context.Context, w *resp.Writer, args [][]byte) {
	args = args[1:]
	n := len(args) / 3
	switch {
	case len(args)%3 != 0:
		w.Error("ERR syntax error: must be WEIR.TAKEALL policy key cost [policy key cost ...]")
		return
	case n > keyset.MostCharges:
		w.Error(fmt.Sprintf("ERR %d requests: must be from 1 to %d", n, keyset.MostCharges))
		return
	}
	requests := make([]policy.Request, n)
	named := make([]policy.Named, n)
	pointers := make([]*policy.Request, n)
	probes := 0
	for i := range requests {
		a := asked{policy: args[3*i], key: args[3*i+1]}
		if wrong := p.read(&a, args[3*i+2:3*i+3], allOptions); wrong != "" {
			w.Error(wrong)
			return
		}
		if a.cost == 0 {
			probes++
		}
		named[i] = policy.Named{Policy: a.policy, Key: a.key, Cost: a.cost}
		requests[i] = policy.Request{Named: &named[i], Context: ctx}
		pointers[i] = &requests[i]
	}
	x := p.exchange()
	defer p.end(x)
	v := &x.verdict
	if probes == n {
		p.limits.Engine().PeekAll(ctx, pointers, v)
	} else {
		p.limits.Engine().TakeAll(ctx, pointers, v)
	}
	for i := range n {
		if v.Unknown(i) {
			w.Error(p.noPolicy(args[3*i]))
			return
		}
	}
	if !v.Allowed && v.Decision().Reason == weir.ReasonInvalid {
		w.Error(fmt.Sprintf("ERR more limits apply to these requests than can be decided on at once: must be at most %d",
			keyset.MostCharges))
		return
	}
	binding := -1
	if p, ok := v.BindingPart(); ok {
		binding = p.Request
	}
	w.Fields(3)
	tellAllowed(w, v.Allowed)
	w.Field("binding")
	w.Int(int64(binding))
	w.Field("decisions")
	w.Array(n)
	for i := range n {
		d, held := answerTo(v, i)
		w.Fields(decisionFields)
		tellDecision(w, &d, held, args[3*i])
	}
}

// reserve serves WEIR.RESERVE policy key cost [EXPIRE milliseconds] [WAIT milliseconds].
func (p *policyCommands) reserve(ctx context.Context, from patient, w *resp.Writer, args [][]byte) {
	a := asked{policy: args[1], key: args[2], expiry: holds.DefaultExpiry}
	wrong := p.read(&a, args[3:], reserveOptions)
	if wrong == "" && a.cost < 1 {
		wrong = "ERR cost is 0: must be a whole number from 1 to 1000000000000000"
	}
	if wrong != "" {
		w.Error(wrong)
		return
	}
	x := p.exchange()
	defer p.end(x)
	x.ask(ctx, a.policy, a.key, a.cost)
	r, v := &x.request, p.holds.Verdict()
	if a.wait == 0 {
		p.limits.Engine().Reserve(r, v)
	} else if !p.wait(ctx, from, a.wait, r, v, p.limits.Engine().WaitReserve) {
		p.holds.Drop(v)
		w.Error(goneError)
		return
	}
	if v.Unknown(0) {
		p.holds.Drop(v)
		w.Error(p.noPolicy(a.policy))
		return
	}
	start := w.Len()
	w.Fields(decisionFields + 2)
	d, held := v.Decision(), v.Binding >= 0
	tellDecision(w, &d, held, a.policy)
	if !v.Allowed {
		p.holds.Drop(v)
		tellKept(w, "", 0)
		return
	}
	expires := min(a.expiry, holds.Longest(v))
	id, err := p.holds.Keep(v, expires, from.address())
	if err != nil {
		w.Truncate(start)
		code := "TOOMANY "
		if errors.Is(err, holds.ErrClosed) {
			code = "CLOSED "
		}
		w.Error(code + strings.TrimPrefix(err.Error(), "weir: "))
		return
	}
	tellKept(w, id, expires)
}

// commit serves WEIR.COMMIT id [actual].
func (p *policyCommands) commit(_ *conn, w *resp.Writer, args [][]byte) {
	actual := int64(-1)
	switch {
	case len(args) > 3:
		w.Error("ERR syntax error: must be WEIR.COMMIT id [actual]")
		return
	case len(args) == 3:
		n, ok := parseInt(args[2])
		if !ok || n < 0 || n > algo.MaxPermits {
			w.Error("ERR actual is " + excerpt(args[2]) + ": must be a whole number from 0 to 1000000000000000")
			return
		}
		actual = n
	}
	settled(w, args[1], p.holds.Commit(string(args[1]), actual))
}

// cancel serves WEIR.CANCEL id.
func (p *policyCommands) cancel(_ *conn, w *resp.Writer, args [][]byte) {
	settled(w, args[1], p.holds.Cancel(string(args[1])))
}

func settled(w *resp.Writer, id []byte, err error) {
	switch {
	case errors.Is(err, holds.ErrUnsettled):
		w.Error("UNAVAILABLE " + strings.TrimPrefix(err.Error(), "weir: "))
	case err != nil:
		w.Error("NOHOLD there is no reservation " + quoted(id) +
			": it has expired, was settled before, or was never made")
	default:
		w.OK()
	}
}
