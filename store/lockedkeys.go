package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	randv2 "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/limits"
)

// recordName is the key under which a record is kept: no two of them have the same.
func recordName(k recordKey) string {
	return limits.Prefix(k.algorithm) + strconv.Itoa(len(k.policy)) + ":" + k.policy + ":" + k.key
}

// named is the inverse of recordName.
func named(name string) (k recordKey, ok bool) {
	algorithm, rest := limits.CutPrefix(name)
	length, rest, _ := strings.Cut(rest, ":")
	n, err := strconv.Atoi(length)
	if err != nil || n <= 0 || n >= len(rest) || rest[n] != ':' {
		return recordKey{}, false
	}
	k = recordKey{rest[:n], rest[n+1:], algorithm}
	return k, recordName(k) == name
}

// lockedKey is a key that a call has locked, and what is kept for it.
type lockedKey struct {
	name   string
	charge int // which charge it is of
	locked bool
	rec    *record // nil if there is none
	kept   *record // what to keep of it if nothing is taken; nil if nothing has changed
	// changed tells that it was held to another limit before.
	changed bool
}

// call is one attempt of a call of a Locked: it locks some keys, in the order of their names, and writes or unlocks each of
// them once.
type call struct {
	*Locked

	ctx   context.Context //nolint:containedctx // it lives as long as the call
	owner string
	now   int64
	keys  []lockedKey
}

// errAgain says that an attempt did not do anything that counts, and that another one may succeed.
var errAgain = errors.New("weir: the lock was lost before anything was written")

// undecidedError says that a hold has to be settled by the record that decides about it before anything else.
type undecidedError struct{ name, id, of string }

func (e *undecidedError) Error() string { return "weir: permits of " + e.name + " are undecided" }

// attempts makes attempts of a call until one is over: locks that others hold are waited for.
func (s *Locked) attempts(ctx context.Context, charges []Charge, try func(c *call) error) error {
	names := make([]string, len(charges))
	for i := range charges {
		names[i] = recordName(charges[i].recordKey())
	}
	return s.attemptsOf(ctx, names, try)
}

// attemptsOf is attempts for records with these names.
func (s *Locked) attemptsOf(ctx context.Context, names []string, try func(c *call) error) error {
	if err := ctx.Err(); err != nil {
		return notTaken(err)
	}
	if s.closed.Load() {
		return ErrClosed
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.wait, errWaited)
	defer cancel()
	free, err := s.queue.enter(ctx, names)
	if err != nil {
		return waited(ctx, errQueued)
	}
	defer free()
	var before error // why the attempt before did nothing
	for pause := leastPause; ; pause = min(2*pause, mostPause) {
		err := s.attempt(ctx, names, try)
		if undecided, ok := errors.AsType[*undecidedError](err); ok {
			if err = s.heal(ctx, undecided); err == nil {
				pause = leastPause
				continue
			}
		}
		if !errors.Is(err, errAgain) && !errors.Is(err, ErrLocked) {
			if before != nil && errors.Is(err, ErrUnavailable) && errors.Is(context.Cause(ctx), errWaited) {
				return waited(ctx, before) // it waited until it was too late to ask
			}
			return err
		}
		before = err
		timer := time.NewTimer(pause/2 + randv2.N(pause)) //nolint:gosec // who waits how long is no secret
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return waited(ctx, err)
		}
	}
}

const (
	leastPause = 500 * time.Microsecond
	mostPause  = 20 * time.Millisecond
)

var (
	errWaited = errors.New("weir: waited as long as LockedOptions.Wait says")
	errQueued = errors.New("weir: earlier calls of this process for the key have not ended")
)

// waited is the error of a call that could not lock its keys, for the reason err, until its context ended.
func waited(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); !errors.Is(cause, errWaited) {
		return notTaken(cause)
	}
	return fmt.Errorf("%w: %w: %w", ErrUnavailable, errWaited, err)
}

// attempt locks the keys and tries.
func (s *Locked) attempt(ctx context.Context, names []string, try func(c *call) error) error {
	c := &call{Locked: s, ctx: ctx, owner: rand.Text(), keys: make([]lockedKey, len(names))}
	for i, name := range names {
		c.keys[i] = lockedKey{name: name, charge: i}
	}
	slices.SortFunc(c.keys, func(a, b lockedKey) int { return strings.Compare(a.name, b.name) })
	defer c.release() //nolint:contextcheck // it comes after the call
	for i := range c.keys {
		if err := c.lock(&c.keys[i]); err != nil {
			return err
		}
	}
	c.now = clockNow(s.clock)
	for i := range c.keys {
		if k := &c.keys[i]; k.rec != nil {
			if h := k.rec.undecided(k.rec.clocks.place(c.now, k.rec.at)); h != nil {
				return &undecidedError{k.name, h.id, h.of}
			}
		}
	}
	return try(c)
}

// lock locks a key and reads its record.
func (c *call) lock(k *lockedKey) error {
	value, err := c.locks.LockAndGet(c.ctx, k.name, c.owner, c.lease)
	switch {
	case errors.Is(err, ErrLocked):
		return ErrLocked
	case err != nil: // it may be locked nevertheless: then the lease ends it
		return failed(c.ctx, err)
	}
	k.locked = true
	if value == nil {
		return nil
	}
	if k.rec, err = decodeRecord(value, nil); err != nil {
		return &unreadableError{k.name, err}
	}
	if of, _ := limits.CutPrefix(k.name); k.rec.terms.limit.Algorithm() != of {
		return &unreadableError{k.name, errMalformed}
	}
	return nil
}

// unreadableError says that what is kept for a key is not a record.
type unreadableError struct {
	name string
	why  error
}

func (e *unreadableError) Error() string {
	return fmt.Sprintf("%v: %.80q: %v", ErrUnreadable, e.name, e.why)
}

func (e *unreadableError) Unwrap() []error { return []error{ErrUnreadable, e.why} }

// failed is the error of a call for which a place of states failed.
func failed(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errWaited) {
		return fmt.Errorf("%w: %w", ErrUnavailable, cause)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// write writes the record of a key and unlocks it: errAgain says that the lock was lost, and nothing was written.
func (c *call) write(k *lockedKey) error {
	k.locked = false
	var (
		value []byte
		ttl   time.Duration
	)
	if r := k.rec; r != nil { // also if it is fresh, as the clocks of others may be behind
		value = r.encode()
		ttl = time.Duration(min(after(r.freshIn(), time.Duration(r.behind)), int64(mostTTL))) + c.skew
		ttl = (ttl + time.Second - 1).Truncate(time.Second) // an adapter that counts in seconds must not drop it early
	}
	switch err := c.locks.SetAndUnlock(c.ctx, k.name, c.owner, value, ttl); {
	case errors.Is(err, ErrNotOwner):
		return errAgain
	case err != nil:
		return failed(c.ctx, err)
	}
	return nil
}

// mostTTL is the longest time for which bytes are kept: debts included, nothing takes longer to be regained.
const mostTTL = 2 * 18300 * 24 * time.Hour

// release unlocks what is still locked. An error is no harm: the lease ends the lock.
func (c *call) release() {
	for i := range c.keys {
		if k := &c.keys[i]; k.locked {
			k.locked = false
			ctx, cancel := c.afterwards(c.ctx)
			_ = c.locks.Unlock(ctx, k.name, c.owner)
			cancel()
		}
	}
}

// ready brings the record of a key to now and under the limit t, making one if there is none.
func (c *call) ready(k *lockedKey, t *terms) {
	if k.rec == nil {
		k.rec = newRecord(t, c.now)
	}
	k.rec.readyFor(c.now, t)
}
