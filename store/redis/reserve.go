package redis

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

const (
	// idBytes is how many bytes an ID has; all but the first few are random.
	idBytes     = 15
	idTimeBytes = 6
)

// newID begins with the time, so that of reservations that expire in the same microsecond those made first come first.
func newID() string {
	var id [8 + idBytes]byte
	binary.BigEndian.PutUint64(id[:], uint64(time.Now().UnixMicro()))
	_, _ = rand.Read(id[8:]) // it never fails
	return string(id[8-idTimeBytes:][:idBytes])
}

// reserve asks for decisions about a part, and reserves its charges if all are allowed.
func (s *Store) reserve(ctx context.Context, p *part, id string, expiry time.Duration) error {
	r, err := s.run(ctx, p, opReserve, int64(expiry)/microsecond, id)
	if err != nil {
		return err
	}
	if err := p.decided(&r); err != nil {
		return err
	}
	p.expires = r.number()
	return p.ended(&r)
}

// reserved is the reservation of a part.
func reserved(id string, charges []store.Charge, p *part, err error) (store.Hold, error) {
	if err != nil || !p.allowed() {
		return store.Hold{}, err
	}
	return store.Hold{
		ID: base64.RawURLEncoding.EncodeToString([]byte(id)), Charges: append([]store.Charge(nil), charges...),
		Expires: p.expires * microsecond,
	}, nil
}

// Settle implements [store.Home]. In a cluster, it is one step for each slot.
func (s *Store) Settle(ctx context.Context, r store.Hold, actual []int64) error {
	s.made()
	if err := store.CheckSettle(r, actual); err != nil || len(r.Charges) == 0 {
		return err
	}
	if err := store.Check(store.Ask{Mode: store.ModeRefund}, r.Charges, nil); err != nil {
		return err
	}
	if r.ID == "" {
		spent := int64(0)
		if actual != nil {
			spent = actual[0]
		}
		return s.takeBack(ctx, &r, r.Charges[0].N-spent)
	}
	id, err := base64.RawURLEncoding.DecodeString(r.ID)
	if err != nil || len(id) != idBytes {
		return store.ErrNotReserved
	}
	parts, err := s.parts(r.Charges)
	if err != nil {
		return err
	}
	lost, err := s.settleParts(ctx, parts, string(id), func(p *part) []int64 {
		if actual == nil || p.places == nil {
			return actual
		}
		of := make([]int64, len(p.places))
		for i, at := range p.places {
			of[i] = actual[at]
		}
		return of
	})
	if err == nil && lost == len(parts) {
		return store.ErrNotReserved
	}
	return err
}

// settleParts settles all parts whatever the others answer, and returns how many of them had nothing reserved any more.
func (s *Store) settleParts(
	ctx context.Context, parts []part, id string, actual func(p *part) []int64,
) (lost int, failed error) {
	errs := make([]error, len(parts))
	each(parts, func(k int, p *part) {
		p.actual = actual(p)
		errs[k] = s.settlePart(ctx, p, id)
	})
	for _, err := range errs {
		switch {
		case errors.Is(err, store.ErrNotReserved):
			lost++
		case err != nil && failed == nil:
			failed = err
		}
	}
	return lost, failed
}

// takeParts settles all parts as what they have reserved, which must still be so.
func (s *Store) takeParts(ctx context.Context, parts []part, id string) error {
	lost, err := s.settleParts(ctx, parts, id, (*part).permits)
	if err == nil && lost > 0 {
		err = store.ErrNotReserved
	}
	if err != nil {
		return unavailable(err)
	}
	return nil
}

func (s *Store) settlePart(ctx context.Context, p *part, id string) error {
	r, err := s.run(ctx, p, opSettle, 0, id)
	if err != nil {
		return err
	}
	if found := r.byte(); r.short {
		return unavailable(errReply)
	} else if found == 0 {
		return store.ErrNotReserved
	}
	return nil
}

// permits are those of the charges.
func (p *part) permits() []int64 {
	all := make([]int64, len(p.charges))
	for i := range p.charges {
		all[i] = p.charges[i].N
	}
	return all
}

// each calls f for each part at a time.
func each(parts []part, f func(k int, p *part)) {
	if len(parts) == 1 {
		f(0, &parts[0])
		return
	}
	var wait sync.WaitGroup
	for k := range parts {
		wait.Go(func() { f(k, &parts[k]) })
	}
	wait.Wait()
}

// askParts decides about charges in several slots of a cluster. Each part is reserved; if all are allowed the reservations are
// committed, otherwise canceled. If this process dies, or the servers cannot be reached, between the two, what is not settled
// is canceled when the reservations expire.
func (s *Store) askParts(
	ctx context.Context, ask store.Ask, parts []part, charges []store.Charge, decisions []weir.Decision,
) (store.Hold, error) {
	id := newID()
	life := ask.Hold
	if life == 0 {
		life = max(10*s.options.Timeout, time.Second)
	}
	errs := make([]error, len(parts))
	each(parts, func(k int, p *part) {
		if ask.Mode == store.ModePeek {
			errs[k] = s.decide(ctx, opPeek, p)
		} else {
			errs[k] = s.reserve(ctx, p, id, life)
		}
	})
	failed := errors.Join(errs...)
	all := failed == nil
	expires := int64(0)
	var taken []part
	for k := range parts {
		p := &parts[k]
		if errs[k] == nil && p.allowed() {
			if expires == 0 || p.expires < expires {
				expires = p.expires
			}
			taken = append(taken, *p)
		} else {
			all = false
		}
		for i, at := range p.places {
			decisions[at] = p.decisions[i]
		}
	}
	switch {
	case ask.Mode == store.ModePeek:
		if failed != nil {
			clear(decisions)
		}
		return store.Hold{}, failed
	case all && ask.Hold != 0:
		whole := part{decisions: decisions, expires: expires}
		return reserved(id, charges, &whole, nil)
	case all:
		err := s.takeParts(ctx, parts, id)
		if err != nil {
			clear(decisions)
		}
		return store.Hold{}, err
	}
	if len(taken) > 0 { // also if the caller has gone; what fails here is canceled when it expires
		_, _ = s.settleParts(context.WithoutCancel(ctx), taken, id, func(*part) []int64 { return nil })
		if failed == nil { // what they answer now that nothing is taken
			each(taken, func(k int, p *part) { errs[k] = s.decide(ctx, opPeek, p) })
			failed = errors.Join(errs[:len(taken)]...)
			for _, p := range taken {
				for i, at := range p.places {
					decisions[at] = p.decisions[i]
				}
			}
		}
	}
	if failed != nil {
		clear(decisions)
	}
	return store.Hold{}, failed
}
