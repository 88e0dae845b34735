package offline

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// machine runs a test: an engine with state of its own and a clock that is moved by hand.
type machine struct {
	clock  *manualclock.Clock
	engine *policy.Engine
	held   []*policy.Verdict
}

// newMachine reads the configuration for a test, whose expressions have the clock of the test.
func (s *suite) newMachine(at time.Time) (*machine, error) {
	m := &machine{clock: manualclock.New(at.UnixNano())}
	file, err := config.Load(s.config, config.Options{
		Env: s.lookup, HasStore: true,
		Now: func() time.Time { return time.Unix(0, m.clock.Now()).UTC() },
	})
	if err != nil {
		return nil, err
	}
	m.engine, err = policy.NewEngine(file.Set, policy.EngineOptions{Clock: m.clock, Alone: true})
	return m, err
}

// lookup finds a variable in the file of tests, and otherwise in the environment.
func (s *suite) lookup(name string) (string, bool) {
	if value, ok := s.env[name]; ok {
		return value, true
	}
	return os.LookupEnv(name)
}

func (m *machine) close() {
	m.release()
	// The engine had no other user, so its error means nothing.
	_ = m.engine.Close()
}

func (m *machine) release() {
	for _, v := range m.held {
		v.Release()
	}
	m.held = nil
}

// run runs a test, and returns what was not as expected. The error is that of ctx, if it ends before.
func (s *suite) run(ctx context.Context, t *test) ([]failureReport, error) {
	m, err := s.newMachine(t.at) //nolint:contextcheck // a test has no store that could be asked
	if err != nil {
		return nil, err
	}
	defer m.close()
	var failures []failureReport
	for i := range t.steps {
		one := &t.steps[i]
		result, err := m.step(ctx, one, one.times)
		if err != nil {
			return nil, err
		}
		for _, e := range one.expect {
			got, ok := e.check(result)
			if ok {
				continue
			}
			f := failureReport{
				Line: e.place.Node.Line, Column: e.place.Node.Column, Step: i + 1, Field: e.field, Expected: e.expected, Got: got,
				Request: describe(one.request), Number: result.telling(e.field) + 1, Of: one.times,
			}
			if err := s.explain(ctx, t, &f); err != nil {
				return nil, err
			}
			failures = append(failures, f)
		}
	}
	return failures, nil
}

// telling is the request that tells most about an expectation that was not met: of a count the first that was refused, if there
// is one, and otherwise the last.
func (r *result) telling(field string) int64 {
	if (field == "allowed" || field == "refused") && r.firstRefused >= 0 {
		return r.firstRefused
	}
	return r.requests - 1
}

// betweenLooks is how many requests are sent before the context is looked at again.
const betweenLooks = 4096

// step waits, sends the requests up to limit of them, and returns what became of them. The error is that of ctx.
func (m *machine) step(ctx context.Context, s *step, limit int64) (*result, error) {
	m.clock.Advance(s.wait)
	if s.release {
		m.release()
	}
	r := &result{firstRefused: -1, lastAllowed: -1}
	if !s.sends {
		return r, ctx.Err()
	}
	needsRules := slices.ContainsFunc(s.expect, func(e expectation) bool { return e.field == rules })
	v := &policy.Verdict{}
	for i := range limit {
		if i%betweenLooks == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if i > 0 {
			m.clock.Advance(s.every)
		}
		if needsRules && i == s.times-1 {
			explanation := m.engine.Explain(s.request)
			for _, rule := range explanation.Rules {
				if rule.Matched {
					r.matched = append(r.matched, rule.Name)
				}
			}
		}
		m.engine.Take(s.request, v)
		r.add(v)
		if v.Allowed && s.hold {
			m.held = append(m.held, v)
			v = &policy.Verdict{}
			continue
		}
		v.Release()
	}
	return r, nil
}

// add counts a verdict, and keeps what is expected of the last.
func (r *result) add(v *policy.Verdict) {
	switch {
	case v.Allowed:
		r.allowed++
		r.lastAllowed = r.requests
	case r.firstRefused < 0:
		r.firstRefused = r.requests
	}
	if v.Exempt {
		r.exempt++
	}
	r.requests++
	r.last = verdict{allowed: v.Allowed, over: v.Over(0), decision: v.Decision()}
	if p, ok := v.BindingPart(); ok {
		r.last.policy, r.last.limit, r.last.key = p.Policy.Name, p.Decision.Policy, string(p.Key)
		if p.Limit < len(p.Policy.Limits) {
			r.last.full = p.Policy.Name + "/" + p.Policy.Limits[p.Limit].Name
		}
	}
}

// explain runs the test once more up to the request that the failure is about, and explains that.
func (s *suite) explain(ctx context.Context, t *test, f *failureReport) error {
	m, err := s.newMachine(t.at) //nolint:contextcheck // a test has no store that could be asked
	if err != nil {
		return err
	}
	defer m.close()
	for i := range f.Step - 1 {
		if _, err := m.step(ctx, &t.steps[i], t.steps[i].times); err != nil {
			return err
		}
	}
	last := &t.steps[f.Step-1]
	if _, err := m.step(ctx, last, f.Number-1); err != nil {
		return err
	}
	if f.Number > 1 {
		m.clock.Advance(last.every)
	}
	f.At = time.Unix(0, m.clock.Now()).UTC()
	explanation := m.engine.Explain(last.request)
	f.Explanation = operator.ExplanationOf(&explanation)
	return nil
}
