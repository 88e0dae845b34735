package redis

import (
	"context"
	"crypto/sha1" //nolint:gosec // what Redis names scripts by
	_ "embed"
	"encoding/hex"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

//go:embed decide.lua
var decide string

// What the script is asked to do.
const (
	opTake = iota + 1
	opReserve
	opPeek
	opRefund
	opSettle
	opInspect
	opReset
	opDebit
	opLend
	opReturn
)

// Store is a [store.Home] in Redis or Valkey: see the package comment for what it guarantees. Make it by [Open].
type Store struct {
	options  Options
	dispatch *dispatcher
	cluster  bool
	// split has the limits of a request go to different slots by themselves even where the server is no cluster: for tests.
	split bool
	// virtual is the time of the server in microseconds, if it is not negative: for tests.
	virtual atomic.Int64
	// ahead is how far the server's clock is ahead of this process's, in microseconds. It only chooses edges of calendars,
	// which the script checks.
	ahead atomic.Int64
}

var _ store.Home = (*Store)(nil)

// Open connects to the servers. It returns an *[weir.OptionError] for wrong options, and [store.ErrUnavailable] if no server can
// be reached. Later it connects again by itself whenever a connection is lost.
func Open(o Options) (*Store, error) {
	o, err := o.checked()
	if err != nil {
		return nil, err
	}
	servers, err := o.servers()
	if err != nil {
		return nil, err
	}
	s := &Store{options: o}
	s.virtual.Store(-1)
	sum := sha1.Sum([]byte(decide)) //nolint:gosec // what Redis names scripts by
	if s.dispatch, err = newDispatcher(servers, decide, hex.EncodeToString(sum[:]), o); err != nil {
		return nil, err
	}
	s.cluster = servers.cluster
	return s, nil
}

// made panics if s is a zero Store.
func (s *Store) made() {
	if s.dispatch == nil {
		panic("weir: redis: zero Store: make it by Open")
	}
}

// Close implements [store.Home]. Calls in flight return ErrClosed, or what the server has replied.
func (s *Store) Close() error {
	s.made()
	s.dispatch.close()
	return nil
}

// Do implements [store.Home]. In a cluster, the charges of keys with the same text are one step. Those of several keys are
// reserved first and committed then; refunds and debits are one step for each slot. If a debit fails for some of the slots, the
// call fails, and what was debited in others stays so.
func (s *Store) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	s.made()
	if err := store.Check(ask, charges, decisions); err != nil || len(charges) == 0 {
		return store.Hold{}, err
	}
	if ask.Mode == store.ModeReset {
		return store.Hold{}, s.reset(ctx, charges)
	}
	parts, err := s.parts(charges)
	if err != nil {
		return store.Hold{}, err
	}
	for k := range parts {
		if p := &parts[k]; len(parts) == 1 {
			p.decisions = decisions
		} else {
			p.decisions = make([]weir.Decision, len(p.charges))
		}
	}
	switch {
	case ask.Mode == store.ModeRefund:
		return store.Hold{}, s.refund(ctx, parts)
	case ask.Mode == store.ModeDebit:
		return store.Hold{}, s.debit(ctx, parts, decisions)
	case ask.Mode == store.ModeLend:
		return s.lend(ctx, &parts[0], ask.Least)
	case ask.States != nil:
		return store.Hold{}, s.inspect(ctx, parts, decisions, ask.States)
	case len(parts) > 1:
		return s.askParts(ctx, ask, parts, charges, decisions)
	case ask.Mode == store.ModePeek:
		return store.Hold{}, s.decide(ctx, opPeek, &parts[0])
	case ask.Hold != 0:
		id := newID()
		return reserved(id, charges, &parts[0], s.reserve(ctx, &parts[0], id, ask.Hold))
	}
	return store.Hold{}, s.decide(ctx, opTake, &parts[0])
}

// part is the charges of a request that are one step of the script, and what it is asked about them.
type part struct {
	charges   []store.Charge
	decisions []weir.Decision
	places    []int // of the charges in the request, if there are several parts
	slot      uint16
	actual    []int64 // what the charges of a reservation really cost; nil to cancel it
	expires   int64   // of what was reserved, in microseconds

	op     byte
	full   byte  // whether all keys are sent
	extra  int64 // for opReserve how long in microseconds, for opLend the fewest permits, for opReturn when they were lent
	id     string
	around []around // of calendars
}

// around says which edges of a calendar the server wants.
type around struct{ time, from int64 }

// parts cuts a request into steps: one, unless the charges belong to several slots of a cluster.
func (s *Store) parts(charges []store.Charge) ([]part, error) {
	for i := range charges {
		if _, err := lawOf(charges[i].Limit); err != nil {
			return nil, err
		}
	}
	if !s.cluster && !s.split || len(charges) == 1 {
		return []part{{charges: charges}}, nil
	}
	var parts []part
next:
	for i, c := range charges {
		slot := slotOf(s.key(&c, kindRecord))
		for k := range parts {
			if p := &parts[k]; p.slot == slot {
				p.charges, p.places = append(p.charges, c), append(p.places, i)
				continue next
			}
		}
		parts = append(parts, part{charges: []store.Charge{c}, places: []int{i}, slot: slot})
	}
	return parts, nil
}

// law is that of a charge, which parts has checked.
func (p *part) law(i int) *law {
	w, _ := lawOf(p.charges[i].Limit)
	return w
}

// head is the first argument of the script.
func (s *Store) head(op, full byte, extra int64, id string) string {
	return string(append(numbers([]byte{op, full}, s.virtual.Load(), extra), id...))
}

// run sends the script what it is asked about a part until it misses nothing, and returns what comes after the time in its reply.
func (s *Store) run(ctx context.Context, p *part, op byte, extra int64, id string) (reader, error) {
	p.op, p.full, p.extra, p.id, p.around = op, 0, extra, id, nil
	if op == opReserve || op == opSettle {
		p.full = 1
	}
	until := time.Now().Add(s.options.Timeout)
	for i := range 3*len(p.charges) + 3 { // more than it can need
		if i > 0 && !time.Now().Before(until) {
			return reader{}, unavailable(errLate)
		}
		reply, err := s.dispatch.call(ctx, until, s.keys(p), s.arguments(p))
		if err != nil {
			return reader{}, err
		}
		r := reader{rest: reply}
		switch r.byte() {
		case replyDone:
			r.now = r.number()
			return r, nil
		case replyAtOnce:
			ahead := r
			ahead.byte()
			r.now = ahead.number()
			return r, nil
		case replyAllKeys:
			p.full = 1
		case replyEdges:
			i := int(r.byte()) - 1
			now, from := r.number(), r.number()
			if r.short || i < 0 || i >= len(p.around) {
				return reader{}, unavailable(errReply)
			}
			p.around[i] = around{now, from}
			s.ahead.Store(now - time.Now().UnixMicro())
		case replyUnreadable:
			i := int(r.byte()) - 1
			if r.short || i < 0 || i >= len(p.charges) {
				return reader{}, unavailable(errReply)
			}
			return reader{}, unreadable(&p.charges[i])
		default:
			return reader{}, unavailable(errReply)
		}
	}
	return reader{}, unavailable(errReply)
}

func (s *Store) keys(p *part) []string {
	if p.full == 0 {
		keys := make([]string, len(p.charges))
		for i := range p.charges {
			keys[i] = s.key(&p.charges[i], kindRecord)
		}
		return keys
	}
	keys := make([]string, 0, 3*len(p.charges))
	for i := range p.charges {
		c := &p.charges[i]
		keys = append(keys, s.key(c, kindRecord), s.key(c, kindReservations), s.key(c, kindDue))
	}
	return keys
}

func (s *Store) arguments(p *part) []string {
	n := len(p.charges)
	args := make([]string, 0, n+1)
	if p.op != opTake || p.full != 0 || n > 1 || s.virtual.Load() >= 0 { // most calls need no head
		args = append(args, s.head(p.op, p.full, p.extra, p.id))
	}
	for i := range p.charges {
		w, arg := p.law(i), p.argument(i)
		if w.code == codeCalendar {
			if p.around == nil {
				p.around = make([]around, n)
			}
			e := &p.around[i]
			if e.time == 0 {
				e.time = time.Now().UnixMicro() + s.ahead.Load()
			}
			arg = string(w.edges([]byte(arg), e.time, e.from))
		}
		args = append(args, arg)
	}
	return args
}

// argument is that of a charge, without the edges of a calendar.
func (p *part) argument(i int) string {
	w, n := p.law(i), p.charges[i].N
	switch p.op {
	case opTake, opReserve, opPeek, opInspect:
		var buf [128]byte
		return w.argument(buf[:0], n)
	case opSettle:
		if n = -1; p.actual != nil {
			n = p.actual[i]
		}
	default: // the number of permits counts, and may be more than the limit
	}
	return string(w.counted(n))
}

// decide asks for decisions about a part.
func (s *Store) decide(ctx context.Context, op byte, p *part) error {
	r, err := s.run(ctx, p, op, 0, "")
	if err != nil {
		return err
	}
	if err := p.decided(&r); err != nil {
		return err
	}
	return p.ended(&r)
}

// ended returns an error, and makes no decision, if a reply goes on.
func (p *part) ended(r *reader) error {
	err := r.end(&p.charges[len(p.charges)-1])
	if err != nil {
		clear(p.decisions)
	}
	return err
}

// decided reads the decisions.
func (p *part) decided(r *reader) error {
	for i := range p.charges {
		p.decisions[i] = p.law(i).decision(r, p.charges[i].N, p.charges[i].Policy)
		if err := r.failure(&p.charges[i]); err != nil {
			clear(p.decisions)
			return err
		}
	}
	return nil
}

// allowed reports whether all decisions are.
func (p *part) allowed() bool {
	for i := range p.decisions {
		if !p.decisions[i].Allowed {
			return false
		}
	}
	return true
}

// refund gives permits back.
func (s *Store) refund(ctx context.Context, parts []part) error {
	for k := range parts {
		if _, err := s.run(ctx, &parts[k], opRefund, 0, ""); err != nil {
			return err
		}
	}
	return nil
}

// reset forgets keys.
func (s *Store) reset(ctx context.Context, charges []store.Charge) error {
	if err := ctx.Err(); err != nil {
		return unavailable(err)
	}
	for i := range charges {
		keys := s.keysOfAll(charges[i].Policy, charges[i].Key)
		until := time.Now().Add(s.options.Timeout)
		if _, err := s.dispatch.call(ctx, until, keys, []string{s.head(opReset, 1, 0, ""), ""}); err != nil {
			return err
		}
	}
	return nil
}

// inspect asks for one charge at a time what is kept for it.
func (s *Store) inspect(ctx context.Context, parts []part, decisions []weir.Decision, states []store.State) error {
	for k := range parts {
		for i := range parts[k].charges {
			p, at := &parts[k], i
			if p.places != nil {
				at = p.places[i]
			}
			one := part{charges: p.charges[i : i+1], decisions: decisions[at : at+1]}
			if err := s.state(ctx, &one, &states[at]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) state(ctx context.Context, p *part, state *store.State) error {
	r, err := s.run(ctx, p, opInspect, 0, "")
	if err != nil {
		return err
	}
	p.decisions[0] = p.law(0).decision(&r, p.charges[0].N, p.charges[0].Policy)
	*state = store.State{Decision: p.decisions[0], Known: r.number() != 0, Reservations: int(r.number()), Reserved: r.number()}
	if left := r.number(); left > 0 {
		state.Forgotten = r.now*microsecond + left*int64(time.Millisecond)
	}
	return r.end(&p.charges[0])
}

// String names the store without what must not be shown.
func (s *Store) String() string {
	if s.options.URL != "" {
		return redacted(s.options.URL)
	}
	return fmt.Sprint(s.options.Addresses)
}
