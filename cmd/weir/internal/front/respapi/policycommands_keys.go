package respapi

import (
	"context"
	"strconv"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/cmd/weir/internal/resp"
)

// refund serves WEIR.REFUND policy key n.
func (p *policyCommands) refund(ctx context.Context, w *resp.Writer, args [][]byte) {
	policy, key := args[1], args[2]
	n, ok := parseInt(args[3])
	if !ok || n < 1 || n > algo.MaxPermits {
		w.Error("ERR n is " + excerpt(args[3]) + ": must be a whole number from 1 to 1000000000000000")
		return
	}
	if wrong := p.named(policy, key); wrong != "" {
		w.Error(wrong)
		return
	}
	engine := p.limits.Engine()
	if wrong := p.irrevocable(string(policy)); wrong != "" {
		w.Error(wrong)
		return
	}
	charges, ok := engine.Charges(nil, string(policy), string(key), n)
	if !ok { // its parents are shared, or it has gone meanwhile
		w.Error("NOREFUND limits of policy " + strconv.Quote(string(policy)) + sharedLimits)
		return
	}
	for i := range charges {
		if k, ok := charges[i].Limiter.(*weir.Keyed[string]); ok { // as all limiters of policies are
			k.Refund(charges[i].Key, n)
		}
	}
	x := p.exchange()
	defer p.end(x)
	x.ask(ctx, policy, key, 0)
	engine.Peek(&x.request, &x.verdict)
	p.tell(w, &x.verdict, policy)
}

const sharedLimits = " are kept for several processes, where nothing can be given back but what was reserved:" +
	" use WEIR.RESERVE and WEIR.CANCEL"

// irrevocable says why nothing can be given back to a policy or its parents, or returns "".
func (p *policyCommands) irrevocable(name string) string {
	for range len(p.limits.Engine().Set().Policies) {
		own := p.limits.Policy(name)
		if own == nil {
			return ""
		}
		if own.Shared() {
			return "NOREFUND limits of policy " + strconv.Quote(name) + sharedLimits
		}
		for i := range own.Limits {
			if own.Limits[i].Algorithm() == weir.AlgorithmConcurrency {
				return "NOREFUND policy " + strconv.Quote(name) + " limits concurrency," +
					" where permits come back when they are released: use WEIR.RESERVE and WEIR.CANCEL"
			}
		}
		name = own.Parent
	}
	return ""
}

// reset serves WEIR.RESET policy key.
func (p *policyCommands) reset(ctx context.Context, w *resp.Writer, args [][]byte) {
	if wrong := p.named(args[1], args[2]); wrong != "" {
		w.Error(wrong)
		return
	}
	if err := p.limits.Engine().Reset(ctx, string(args[1]), string(args[2])); err != nil {
		w.Error("UNAVAILABLE " + strings.TrimPrefix(p.limits.Clean(err.Error()), "weir: "))
		return
	}
	w.OK()
}

// unlock serves WEIR.UNLOCK policy key.
func (p *policyCommands) unlock(_ *conn, w *resp.Writer, args [][]byte) {
	if wrong := p.named(args[1], args[2]); wrong != "" {
		w.Error(wrong)
		return
	}
	ended := int64(0)
	if p.limits.Engine().Unlock(string(args[1]), string(args[2])) {
		ended = 1
	}
	w.Int(ended)
}
