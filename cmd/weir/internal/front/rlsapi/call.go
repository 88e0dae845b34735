package rlsapi

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// call is one request with all that is needed to answer it. It is used again.
type call struct {
	service *service
	q       question
	length  int // of its message, in bytes
	texts   texts

	descriptors []policy.Request // what they stand for
	known       []known          // by descriptor, where rules decide
	named       []policy.Named   // what they name, if a configuration says so
	matches     []ratelimitconfig.Match
	matched     []ratelimitconfig.Match // by descriptor; none if rules decide
	asked       []asked                 // by descriptor
	charged     group                   // whose limits have to grant
	probed      group                   // those of them that charge nothing, where the engine cannot be told so with the others
	quotas      []*group                // one for each quota
	spare       []*group                // of earlier calls, for quotas
	passed      int                     // descriptors that are quotas which nothing reaches
	shadowed    bool                    // some descriptor has several hits for a limit of shadow mode
	refunded    group                   // that give hits back
	looked      policy.Verdict          // beside those of the groups
	reported    bool                    // the answer is that it was charged
	unfit       bool                    // nothing could be decided

	statuses []told // by descriptor
	over     bool   // the answer
	fields   ratelimitfields.Written
	last     answer.Last
	forms    forms
	filled   bool // the reply was made by a form
	reply    []byte
}

// group are requests that the engine decides on as one step.
type group struct {
	requests []*policy.Request
	verdict  policy.Verdict
	looked   bool // nothing was taken
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
	for i := range min(len(c.q.descriptors), len(c.descriptors)) {
		r := &c.descriptors[i]
		if c.known[i].path == "" {
			clear(r.Attributes) // the keys of a known path stay
		}
		*r = policy.Request{Attributes: r.Attributes}
	}
	clear(c.named)
	c.q.reset()
	c.texts.release(c.filled)
	c.filled = false
	c.length, c.unfit, c.statuses, c.reply = 0, false, c.statuses[:0], nil
	c.forget()
}

// forget forgets what was prepared and decided.
func (c *call) forget() {
	c.over, c.reported, c.matched, c.asked = false, false, nil, c.asked[:0]
	for _, g := range [...]*group{&c.charged, &c.probed, &c.refunded} {
		g.requests = g.requests[:0]
	}
	for _, g := range c.quotas {
		g.requests = g.requests[:0]
		c.spare = append(c.spare, g)
	}
	clear(c.quotas)
	c.quotas, c.passed, c.shadowed = c.quotas[:0], 0, false
}

// newQuota is a group for one quota.
func (c *call) newQuota() *group {
	g := new(group)
	if n := len(c.spare) - 1; n >= 0 {
		g, c.spare = c.spare[n], c.spare[:n]
	}
	c.quotas = append(c.quotas, g)
	return g
}

// add adds a request to a group.
func (g *group) add(r *policy.Request) asked {
	g.requests = append(g.requests, r)
	return asked{g, len(g.requests) - 1}
}

// prepare makes the requests that the descriptors stand for.
func (c *call) prepare(ctx context.Context) error {
	if err := c.q.check(); err != nil {
		return err
	}
	n := len(c.q.descriptors)
	for len(c.descriptors) < n {
		c.descriptors = append(c.descriptors, policy.Request{})
		c.known = append(c.known, known{})
	}
	if tree := c.service.configured(); tree != nil {
		c.prepareTree(ctx, tree)
	} else {
		c.prepareNative()
	}
	return nil
}

// outdated reports whether a policy that the configuration has named was gone when the engine was asked, as another
// configuration has come into force since.
func (c *call) outdated() bool {
	for _, a := range c.asked {
		if a.group != nil && a.group.verdict.Unknown(a.place) {
			return true
		}
	}
	return false
}

// prepareNative makes requests for the rules. Their cost cannot be 0, so descriptors that charge nothing are decided apart.
func (c *call) prepareNative() {
	for i := range c.q.descriptors {
		d, r := &c.q.descriptors[i], &c.descriptors[i]
		hits := c.q.hitsOf(d)
		c.native(r, &c.known[i], c.q.entriesOf(d), max(hits, 1))
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
	if g := &c.refunded; len(g.requests) > 0 { // it passes unless a rule denies it, which must be known before others are charged
		engine.PeekAll(ctx, g.requests, &g.verdict)
		c.over = g.verdict.Decision().Reason == weir.ReasonDenied
	}
	if len(c.probed.requests) > 0 {
		engine.PeekAll(ctx, c.probed.requests, &c.probed.verdict)
		if err := c.probed.counts(c); err != nil {
			return err
		}
	}
	if g := &c.charged; len(g.requests) > 0 {
		switch {
		case c.over:
			engine.PeekAll(ctx, g.requests, &g.verdict)
		case len(c.quotas) > 0:
			engine.ReserveAll(ctx, g.requests, &g.verdict) // until it is known what the quotas say
		default:
			engine.TakeAll(ctx, g.requests, &g.verdict)
			g.verdict.Release()
		}
		if err := g.counts(c); err != nil {
			return err
		}
	}
	if err := c.askQuotas(ctx); err != nil {
		return err
	}
	if c.over || c.shadowed {
		c.spend(ctx)
	}
	return c.refund(ctx)
}

// peek asks the engine, and charges nothing.
func (c *call) peek(ctx context.Context) error {
	engine := c.service.o.Limits.Engine()
	for _, g := range [...]*group{&c.probed, &c.charged, &c.refunded} {
		if len(g.requests) == 0 {
			continue
		}
		engine.PeekAll(ctx, g.requests, &g.verdict)
		if g == &c.refunded {
			c.over = c.over || g.verdict.Decision().Reason == weir.ReasonDenied
			continue
		}
		if err := g.counts(c); err != nil {
			return err
		}
	}
	return c.lookAtQuotas(ctx)
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
		return unfitf("descriptors have more than %d limits in all, or a cost or limit that cannot be", keyset.MostCharges)
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
			c.tellMatch(ctx, &c.matched[i], a.group != nil && a.group.looked, &t)
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
	t.over = d.Reason == weir.ReasonDenied || !d.Allowed && a.group != &c.refunded && !c.reported
	for i := range v.Parts {
		p := &v.Parts[i]
		if p.Request != a.place || p.Decision != d || p.Unasked && d.Allowed {
			continue
		}
		t.limited = true
		t.limit = currentOf(p.Applied(), d)
		t.remaining = d.Remaining
		t.reset = c.service.resetOf(p.Applied(), &d)
		break
	}
	return t
}
