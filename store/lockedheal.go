package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	randv2 "math/rand/v2"
	"time"
)

// takeAll writes the records of several keys, which have their permits taken, so that either all of it counts or nothing:
// see Locked.
func (c *call) takeAll(charges []Charge, taken []*lockedKey) error {
	first, others := taken[0], taken[1:]
	if len(first.rec.done) >= mostDone {
		return fmt.Errorf("%w: too many unfinished requests at %.80q", ErrUnavailable, first.name)
	}
	id, left := rand.Text(), first.rec.freshIn()
	for _, k := range others {
		left = max(left, k.rec.freshIn())
	}
	until := after(first.rec.at, time.Duration(left))
	names := make([]lockedKey, 0, len(others))
	for _, k := range others {
		names = append(names, lockedKey{name: k.name})
		k.rec.hold(id, charges[k.charge].N, k.rec.at+int64(c.lease), first.name)
		if err := c.write(k); err != nil {
			c.undo(id, names)
			return err
		}
	}
	first.rec.finished(id, after(until, c.skew), int64(len(others)))
	if err := c.write(first); err != nil {
		if errors.Is(err, errAgain) {
			c.undo(id, names)
		}
		return err // it may have been written: a later call that finds the others knows
	}
	c.release() // the probes
	c.finish(id, first.name, names)
	return nil
}

// undo cancels what was written for a request that failed, as far as it can: the rest expires.
func (c *call) undo(id string, keys []lockedKey) {
	ctx, cancel := c.afterwards(c.ctx)
	defer cancel()
	for i := range keys {
		err := c.change(ctx, keys[i].name, func(k *lockedKey) bool { return c.end(k, id, (*record).cancel) })
		if err != nil && !errors.Is(err, errAgain) {
			return
		}
	}
}

// finish tells the other keys that the request was allowed, and the first that they know, as far as it can: for those that
// it does not reach, the next call that finds them does.
func (c *call) finish(id, first string, others []lockedKey) {
	ctx, cancel := c.afterwards(c.ctx)
	defer cancel()
	told := int64(0)
	for i := range others {
		ended := false
		err := c.change(ctx, others[i].name, func(k *lockedKey) bool {
			ended = c.end(k, id, (*record).keep)
			return ended
		})
		if err != nil {
			break
		}
		if ended {
			told++
		}
	}
	c.tell(c.ctx, first, id, told)
}

// tell notes at the first key of a request how many more keys know that it was allowed. If that fails the note stays for
// longer than it has to, which is no harm.
func (s *Locked) tell(ctx context.Context, first, id string, told int64) {
	ctx, cancel := s.afterwards(ctx)
	defer cancel()
	_ = s.change(ctx, first, func(k *lockedKey) bool {
		if k.rec == nil {
			return false
		}
		s.prepare(k)
		return k.rec.known(id, told)
	})
}

// end ends the hold of this id, if it is there, and reports whether it was.
func (c *call) end(k *lockedKey, id string, how func(r *record, at int)) bool {
	return c.Locked.end(k, id, how)
}

func (s *Locked) end(k *lockedKey, id string, how func(r *record, at int)) bool {
	if k.rec == nil {
		return false
	}
	s.prepare(k)
	at := k.rec.find(id, 0)
	if at < 0 {
		return false
	}
	how(k.rec, at)
	return true
}

func (s *Locked) prepare(k *lockedKey) { k.rec.readyFor(clockNow(s.clock), nil) }

// afterwards is the context of what is done after a call is decided, whether or not its own context has ended: it is short.
func (s *Locked) afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), min(s.lease, s.wait, time.Second))
}

// change locks one key, waiting for it if it must, and writes it if f says that it has changed it.
func (s *Locked) change(ctx context.Context, name string, f func(k *lockedKey) bool) error {
	return s.changeAll(ctx, name, false, f)
}

// changeAll is change also of what cannot be read, if overwrite is true.
func (s *Locked) changeAll(ctx context.Context, name string, overwrite bool, f func(k *lockedKey) bool) error {
	for pause := leastPause; ; pause = min(2*pause, mostPause) {
		err := s.changeOnce(ctx, name, overwrite, f)
		if !errors.Is(err, ErrLocked) && !errors.Is(err, errAgain) {
			return err
		}
		timer := time.NewTimer(pause/2 + randv2.N(pause)) //nolint:gosec // who waits how long is no secret
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

func (s *Locked) changeOnce(ctx context.Context, name string, overwrite bool, f func(k *lockedKey) bool) error {
	c := &call{Locked: s, ctx: ctx, owner: rand.Text(), keys: []lockedKey{{name: name}}}
	k := &c.keys[0]
	defer c.release() //nolint:contextcheck // it comes after the call
	if err := c.lock(k); err != nil {
		if _, ok := errors.AsType[*unreadableError](err); !ok || !overwrite {
			return err
		}
	}
	c.now = clockNow(s.clock)
	if !f(k) {
		return nil
	}
	return c.write(k)
}

// heal settles a hold whose caller did not, as the record that decides about it says. ErrLocked says that the caller may be
// about to.
func (s *Locked) heal(ctx context.Context, u *undecidedError) error {
	allowed := false
	err := s.changeOnce(ctx, u.of, false, func(k *lockedKey) bool {
		if k.rec != nil {
			_, allowed = k.rec.isFinished(u.id)
		}
		return false
	})
	if err != nil {
		return err
	}
	how := (*record).cancel
	if allowed {
		how = (*record).keep
	}
	ended := false
	err = s.changeOnce(ctx, u.name, false, func(k *lockedKey) bool {
		ended = s.end(k, u.id, how)
		return ended
	})
	if err == nil && allowed && ended {
		s.tell(ctx, u.of, u.id, 1)
	}
	return err
}
