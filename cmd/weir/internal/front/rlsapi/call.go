package rlsapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/policy"
)

// call is one request with all that is needed to answer it. It is used again.
type call struct {
	service *service
	q       question
	tooLong int // bytes of a request that is not looked at

	descriptors []policy.Request // what they stand for
	matches     []ratelimitconfig.Match
	matched     []ratelimitconfig.Match // by descriptor; none if rules decide
	asked       []asked                 // by descriptor
	charged     group                   // whose limits have to grant
	probed      group                   // those of them that charge nothing, where the engine cannot be told so with the others
	apart       group                   // whose limits refuse nobody
	refunded    group                   // that give hits back
	looked      policy.Verdict          // beside those of the groups
	reported    bool                    // the answer is that it was charged

	statuses []told // by descriptor
	over     bool   // the answer
	header   http.Header
	path     strings.Builder
	reply    []byte
}

// group are requests that the engine decides on as one step.
type group struct {
	requests []*policy.Request
	verdict  policy.Verdict
}

// asked says which request of which group a descriptor has become: nil if of none.
type asked struct {
	group *group
	place int
}

// told is what is told of a descriptor.
type told struct {
	over      bool
	limited   bool // the limit is known
	unlimited bool // and there is none
	limit     currentLimit
	remaining int64
	reset     time.Duration // 0: not told
}

// currentLimit is a limit as it is told: so many requests in so many units.
type currentLimit struct {
	requests   int64
	unit       int32
	multiplier int64
	name       string
}

// release forgets what a request has left, before the call is used again.
func (c *call) release() {
	for i := range c.descriptors {
		r := &c.descriptors[i]
		clear(r.Attributes)
		*r = policy.Request{Attributes: r.Attributes}
	}
	c.q.reset()
	c.tooLong, c.over, c.reported = 0, false, false
	c.matched, c.statuses, c.asked = nil, c.statuses[:0], c.asked[:0]
	for _, g := range [...]*group{&c.charged, &c.probed, &c.apart, &c.refunded} {
		g.requests = g.requests[:0]
	}
	clear(c.header)
}

// add adds a request to a group.
func (g *group) add(r *policy.Request) asked {
	g.requests = append(g.requests, r)
	return asked{g, len(g.requests) - 1}
}

// prepare makes the requests that the descriptors stand for.
func (c *call) prepare(ctx context.Context) error {
	if c.tooLong > 0 {
		return tooLong(c.tooLong)
	}
	if err := c.q.check(); err != nil {
		return err
	}
	n := len(c.q.descriptors)
	for len(c.descriptors) < n {
		c.descriptors = append(c.descriptors, policy.Request{})
	}
	if tree := c.service.configured(); tree != nil {
		c.prepareTree(ctx, tree)
	} else {
		c.prepareNative()
	}
	return nil
}

// outdated tells whether a policy that the configuration has named was gone when the engine was asked, as another configuration
// has come into force: no limit has held for the descriptor, though one may in both.
func (c *call) outdated() bool {
	for i := range c.matched {
		m, a := &c.matched[i], c.asked[i]
		if m.Outcome != ratelimitconfig.Limited || a.group == nil {
			continue
		}
		v := &a.group.verdict
		if _, limited := v.Answer(a.place); !limited && !c.service.o.Limits.Knew(v, string(m.Limit.PolicyBytes)) {
			return true
		}
	}
	return false
}

// again forgets what was prepared and decided, and waits a moment for the configuration that comes into force.
func (c *call) again(ctx context.Context) error {
	timer := time.NewTimer(time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-timer.C:
	}
	c.over, c.reported, c.matched, c.asked = false, false, nil, c.asked[:0]
	for _, g := range [...]*group{&c.charged, &c.probed, &c.apart, &c.refunded} {
		g.requests = g.requests[:0]
	}
	return nil
}

// prepareNative makes requests for the rules. Their cost cannot be 0, so who charges nothing is asked apart.
func (c *call) prepareNative() {
	c.path.Reset()
	for i := range c.q.descriptors {
		d, r, from := &c.q.descriptors[i], &c.descriptors[i], c.path.Len()
		hits := c.q.hitsOf(d)
		native(r, c.q.domain, c.q.entriesOf(d), max(hits, 1), &c.path)
		r.Path = c.path.String()[from:]
		switch {
		case d.negative && hits > 0:
			c.asked = append(c.asked, c.refunded.add(r))
		case hits == 0:
			c.asked = append(c.asked, c.probed.add(r))
		default:
			c.asked = append(c.asked, c.charged.add(r))
		}
	}
}

// decide asks the engine, and charges what is to be charged if nothing refuses.
func (c *call) decide(ctx context.Context) error {
	engine := c.service.o.Limits.Engine()
	if len(c.probed.requests) > 0 {
		engine.PeekAll(ctx, c.probed.requests, &c.probed.verdict)
		if err := c.probed.counts(c); err != nil {
			return err
		}
	}
	if g := &c.charged; len(g.requests) > 0 {
		c.ask(ctx, g)
		if err := g.counts(c); err != nil {
			return err
		}
		if c.over && len(c.matched) > 0 {
			c.drain(ctx)
		}
	}
	if len(c.apart.requests) > 0 {
		c.ask(ctx, &c.apart)
	}
	return c.refund(ctx)
}

// ask charges a group, or only looks at it if the request is over a limit already.
func (c *call) ask(ctx context.Context, g *group) {
	engine := c.service.o.Limits.Engine()
	if c.over {
		engine.PeekAll(ctx, g.requests, &g.verdict)
		return
	}
	engine.TakeAll(ctx, g.requests, &g.verdict)
	g.verdict.Release()
}

// peek asks the engine, and charges nothing.
func (c *call) peek(ctx context.Context) error {
	engine := c.service.o.Limits.Engine()
	for _, g := range [...]*group{&c.probed, &c.charged, &c.apart, &c.refunded} {
		if len(g.requests) == 0 {
			continue
		}
		engine.PeekAll(ctx, g.requests, &g.verdict)
		if g == &c.apart || g == &c.refunded {
			continue
		}
		if err := g.counts(c); err != nil {
			return err
		}
	}
	return nil
}

// counts makes the answer what the verdict on a group says.
func (g *group) counts(c *call) error {
	c.over = c.over || !g.verdict.Allowed
	return failure(&g.verdict)
}

// failure is the error of a verdict that is no decision: all others are answered by the policies, those that could not be
// asked included, as their Fail says.
func failure(v *policy.Verdict) error {
	if v.Allowed || v.Binding >= 0 {
		return nil
	}
	switch v.Decision().Reason { //nolint:exhaustive // all others are decisions
	case weir.ReasonInvalid:
		return invalid("descriptors have more than %d limits in all, or a cost or limit that cannot be", weir.MostCharges)
	case weir.ReasonCanceled:
		return status.Error(codes.Canceled, "weir: the call was canceled")
	case weir.ReasonClosed:
		return status.Error(codes.Unavailable, "weir: the server shuts down")
	}
	return nil
}

// conclude makes the statuses of the descriptors.
func (c *call) conclude(ctx context.Context) {
	for i, a := range c.asked {
		var t told
		if a.group != nil {
			t = c.tell(a)
		}
		if len(c.matched) > 0 {
			c.tellMatch(ctx, &c.matched[i], &t)
		}
		c.statuses = append(c.statuses, t)
	}
}

// tell is what was decided about a request.
func (c *call) tell(a asked) (t told) {
	v := &a.group.verdict
	d, limited := v.Answer(a.place)
	if !limited {
		return t
	}
	t.over = !d.Allowed && a.group != &c.refunded && !c.reported
	for i := range v.Parts {
		p := &v.Parts[i]
		if p.Request != a.place || p.Decision != d || p.Unasked && d.Allowed {
			continue
		}
		t.limited = true
		t.limit = currentOf(answer.InForce(p, a.group.requests[a.place]), d)
		t.remaining = d.Remaining
		if d.RetryAfter != weir.Never {
			t.reset = d.ResetAfter
		}
		break
	}
	return t
}
