// Package lockstep runs an algorithm of package algo beside its reference, call by call, and reports the first answer in
// which they differ.
package lockstep

import (
	"fmt"
	"math"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/reference"
)

// Kind is what is called.
type Kind uint8

// The calls of a history.
const (
	Take Kind = iota
	Peek
	Refund
	Cancel
	Charge
)

// String is the name of the method.
func (k Kind) String() string { return [...]string{"Take", "Peek", "Refund", "Cancel", "Charge"}[k] }

// Call is one step of a history.
type Call struct {
	Kind    Kind
	Now, N  int64
	MaxDebt int64 // of Charge
	Mark    int   // of Cancel: 0 is that of the latest Take that was allowed and is still remembered
}

// String is the call with its arguments.
func (c Call) String() string {
	switch c.Kind {
	case Cancel:
		return fmt.Sprintf("%v(now %d, n %d, mark %d)", c.Kind, c.Now, c.N, c.Mark)
	case Charge:
		return fmt.Sprintf("%v(now %d, n %d, maxDebt %d)", c.Kind, c.Now, c.N, c.MaxDebt)
	default:
		return fmt.Sprintf("%v(now %d, n %d)", c.Kind, c.Now, c.N)
	}
}

// remembered is how many marks are kept for Cancel.
const remembered = 8

type mark struct {
	n         int64
	real      algo.Mark
	reference reference.Mark
}

// Pair is an algorithm and its reference, both in the same state.
type Pair[S comparable] struct {
	Algorithm algo.Algorithm[S]
	Reference reference.Limiter
	State     S
	// Last is the result of the last Take or Peek, and Charged that of the last Charge.
	Last    algo.Result
	Charged int64

	marks []mark // the latest last
}

// Marks is how many takes can be canceled.
func (p *Pair[S]) Marks() int { return len(p.marks) }

// Marked is how many permits the Take took that a Cancel with this number of a mark undoes.
func (p *Pair[S]) Marked(i int) int64 { return p.marks[len(p.marks)-1-i].n }

// Do makes the call, and everything that can be asked of the state afterwards. It returns where the two differ.
func (p *Pair[S]) Do(c Call) error {
	before := p.State

	err := p.call(c)
	if err == nil {
		err = p.ask(c)
	}

	if err != nil {
		return fmt.Errorf("%v of %+v in state %+v: %w", c, p.Algorithm, before, err)
	}

	return nil
}

func (p *Pair[S]) call(c Call) error {
	switch c.Kind {
	case Take:
		return p.take(c.Now, c.N)
	case Peek:
		return p.peek(c.Now, c.N)
	case Refund:
		p.State = p.Algorithm.Refund(p.State, c.Now, c.N)
		p.Reference.Refund(c.Now, c.N)
	case Cancel:
		i := len(p.marks) - 1 - c.Mark
		m := p.marks[i]
		p.marks = append(p.marks[:i], p.marks[i+1:]...)
		p.State = p.Algorithm.Cancel(p.State, c.Now, c.N, m.real)
		p.Reference.Cancel(c.Now, c.N, m.reference)
	case Charge:
		p.State, p.Charged = p.Algorithm.Charge(p.State, c.Now, c.N, c.MaxDebt)
		if want := p.Reference.Charge(c.Now, c.N, c.MaxDebt); p.Charged != want {
			return fmt.Errorf("charged %d, want %d", p.Charged, want)
		}
	}

	return nil
}

// ask compares what follows from the state.
func (p *Pair[S]) ask(c Call) error {
	fresh := p.Reference.Fresh(c.Now)
	if got := p.Algorithm.Fresh(p.State, c.Now); got != fresh {
		return fmt.Errorf("fresh afterwards is %t, want %t", got, fresh)
	}

	if c.Kind == Peek || c.Kind == Take && p.Last.RetryAfter == algo.Never {
		return nil // the state may be one of a later time
	}

	switch at := p.Algorithm.FreshAt(p.State); {
	case fresh && at > c.Now:
		return fmt.Errorf("fresh, but FreshAt is %d", at)
	case !fresh && at <= c.Now:
		return fmt.Errorf("not fresh, but FreshAt is %d", at)
	case !fresh && at != math.MaxInt64 && (!p.Algorithm.Fresh(p.State, at) || p.Algorithm.Fresh(p.State, at-1)):
		return fmt.Errorf("FreshAt is %d, which is not the first time at which it is fresh", at)
	}

	if c.Kind == Take {
		return nil
	}

	if got, want := p.Algorithm.Peek(p.State, c.Now, 1), p.Reference.Peek(c.Now, 1); got != want {
		return fmt.Errorf("afterwards Peek(1) is %+v, want %+v", got, want)
	}

	return nil
}

func (p *Pair[S]) peek(now, n int64) error {
	p.Last = p.Algorithm.Peek(p.State, now, n)
	if want := p.Reference.Peek(now, n); p.Last != want {
		return fmt.Errorf("%+v, want %+v", p.Last, want)
	}

	return nil
}

func (p *Pair[S]) take(now, n int64) error {
	before := p.State
	if err := p.peek(now, n); err != nil {
		return fmt.Errorf("asked before by Peek: %w", err)
	}

	peeked := p.Last

	var r algo.Result

	p.State, r = p.Algorithm.Take(before, now, n)
	want, place := p.Reference.Take(now, n)
	taken := r.Mark
	r.Mark = algo.Mark{}
	p.Last = r

	if r != want {
		return fmt.Errorf("%+v, want %+v", r, want)
	}

	if err := p.grant(before, now, n); err != nil {
		return err
	}

	if r.Allowed != peeked.Allowed || r.RetryAfter != peeked.RetryAfter {
		return fmt.Errorf("%+v, but Peek answered %+v", r, peeked)
	}

	switch {
	case r.Allowed && n > 0:
		if len(p.marks) == remembered {
			p.marks = append(p.marks[:0], p.marks[1:]...)
		}

		p.marks = append(p.marks, mark{n, taken, place})
	case taken != algo.Mark{}:
		return fmt.Errorf("took nothing, but answered the Mark %+v", taken)
	}

	if r.RetryAfter == algo.Never && p.State != before {
		return fmt.Errorf("never, but the state became %+v", p.State)
	}

	return p.retry(now, n, r)
}

// grant compares the form of Take that some algorithms have for callers that need only whether it was allowed.
func (p *Pair[S]) grant(before S, now, n int64) error {
	g, ok := p.Algorithm.(interface {
		Grant(s *S, now, n int64) bool
	})
	if !ok || n < 1 || n > p.Algorithm.Limit() {
		return nil
	}

	s := before
	if got := g.Grant(&s, now, n); got != p.Last.Allowed {
		return fmt.Errorf("the answer of Grant is %t, want %t", got, p.Last.Allowed)
	}

	// The state may be written in another way, but must mean the same.
	got, want := p.Algorithm.Peek(s, now, 1), p.Algorithm.Peek(p.State, now, 1)
	if got != want || p.Last.Allowed && s != p.State {
		return fmt.Errorf("the state after Grant is %+v, want %+v", s, p.State)
	}

	return nil
}

// retry looks whether RetryAfter is when the request is allowed, and not a nanosecond later.
func (p *Pair[S]) retry(now, n int64, r algo.Result) error {
	if r.Allowed || r.RetryAfter == 0 || r.RetryAfter == algo.Never {
		return nil
	}

	at := now + int64(r.RetryAfter)
	if then := p.Algorithm.Peek(p.State, at, n); !then.Allowed {
		return fmt.Errorf("RetryAfter is %d, but then the answer is %+v", r.RetryAfter, then)
	}

	if then := p.Algorithm.Peek(p.State, at-1, n); then.Allowed {
		return fmt.Errorf("RetryAfter is %d, but one nanosecond before the answer is %+v", r.RetryAfter, then)
	}

	return nil
}
