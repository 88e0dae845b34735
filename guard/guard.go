package guard

import (
	"encoding/binary"
	"errors"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/names"
	"github.com/weirhq/weir/internal/table"
	"github.com/weirhq/weir/internal/tally"
)

// ErrNoEndpoint is returned where an endpoint is asked for that has no name, or an address that is not valid.
var ErrNoEndpoint = errors.New("weir: no endpoint")

// Guard is one token bucket for each endpoint. An endpoint without a token is throttled (ReasonSoftThrottle). One that keeps
// coming early all the same is locked out for a while (ReasonHardLockout). All methods are safe for concurrent use; Check takes
// one of ShardCount locks and allocates nothing. Close a Guard that is not needed any more: it has a timer that runs its
// cleanups.
//
// An endpoint is an address without its port and zone. An IPv4-mapped address is the IPv4 address, and of an IPv6 address the
// first 64 bits count. Endpoints that are not addresses, such as paths of sockets, are known by their names.
//
// Over any interval t an endpoint is allowed at most CapacityTokens + RefillTokensPerSecond x t requests, with the rate rounded
// to a multiple of 1 / TokenScale: it is RefillPerSecond of Stats. One that keeps asking gets all of them, unless it is locked
// out.
//
// Memory is bounded by MaxTrackedEndpoints: an endpoint costs 80 to 95 bytes. An endpoint is forgotten only if it gains nothing
// by that: it is not locked out, its bucket is full, its violations do not count any more, and, if lockouts escalate, it has
// cooled down. If InitialTokens is 0, it is also kept until another token would have come. So neither cleanups nor a flood of new
// endpoints can end a lockout (TestGuardLockoutSurvivesTenMillionEndpoints). The zero Guard is not usable: call [New].
type Guard struct {
	o         Options
	algorithm algo.TokenBucket
	initial   algo.TokenBucketState // of a new endpoint, at time 0
	fill      time.Duration
	grace     int64 // for how long an endpoint with a full bucket is not forgotten
	prefixes  clientip.Prefixes
	clock     *clock.Steady
	seeds     [4]maphash.Seed
	states    *table.Table
	names     *names.Names[subject]

	maxTracked atomic.Int64
	sharpened  atomic.Int64 // when it was last looked up when a place becomes free
	closed     atomic.Bool
	cleaning   sync.Mutex // held by a cleanup
	rotation   int        // the shard with which the next one begins
	timer      sync.Mutex // guards stop
	stop       func() bool

	allowed, throttled, lockedOut, lockouts, capped tally.Tally
	forgotten, evicted, cleanups                    atomic.Int64
	reported                                        int64 // refusals because of the cap that the log knows of
}

// New returns a guard without any endpoint, or an error that names the option that cannot be used.
func New(o Options) (*Guard, error) {
	a, err := o.check()
	if err != nil {
		return nil, err
	}
	if o.InitialTokens < 0 {
		o.InitialTokens = o.CapacityTokens
	}
	g := &Guard{
		o: o, algorithm: a, clock: clock.New(o.Clock), prefixes: clientip.Prefixes{IPv4: o.IPv4Prefix, IPv6: o.IPv6Prefix},
		names: names.New[subject](o.MinReportCapacity),
	}
	for i := range g.seeds {
		g.seeds[i] = maphash.MakeSeed()
	}
	g.fill = a.FillTime()
	if o.InitialTokens == 0 {
		// A client that was told to wait for a token, and comes for it, must not begin anew with none.
		_, r := a.Take(algo.TokenBucketState{}, 0, 1)
		g.grace = int64(r.ResetAfter)
	}
	g.initial, _ = a.Take(algo.TokenBucketState{}, 0, int64(o.CapacityTokens-o.InitialTokens))
	g.sharpened.Store(math.MinInt64 / 2)
	g.maxTracked.Store(int64(o.MaxTrackedEndpoints))
	g.states = table.New(table.Options{
		Words: entryWords, MaxKeys: int64(o.MaxTrackedEndpoints), Shards: o.shards(), Linger: int64(o.StaleEntry),
		FreshAt: func(state []uint64, _ uint16) int64 { return g.forgettableAt((*entry)(state)) },
	})
	g.schedule(g.now())
	return g, nil
}

func (g *Guard) now() int64 { return g.clock.Now() }

// subject is what has a bucket: an endpoint, or one operation of an endpoint.
type subject struct {
	network   netip.Prefix // valid for an address
	operation bool
	op        uint64
	name      string
}

func (s *subject) String() string {
	if !s.network.IsValid() {
		return s.name
	}
	text := s.network.String()
	if s.network.IsSingleIP() {
		text = s.network.Addr().String()
	}
	if s.operation {
		text += " operation " + strconv.FormatUint(s.op, 10)
	}
	return text
}

// keep is the subject as it can be kept: its name may be a part of a packet.
func (s subject) keep() subject {
	s.name = strings.Clone(s.name)
	return s
}

func (g *Guard) endpoint(endpoint string) (s subject, ok bool) {
	if addr, ok := clientip.Parse(endpoint); ok {
		return subject{network: g.prefixes.Mask(addr)}, true
	}
	return subject{name: endpoint}, endpoint != ""
}

func (g *Guard) hash(s *subject) table.Hash {
	if !s.network.IsValid() {
		return table.NewHash(maphash.String(g.seeds[0], s.name), maphash.String(g.seeds[1], s.name))
	}
	// All networks of a family are equally long, and those of two families differ as they do in 16 bytes.
	var key [25]byte
	addr := s.network.Addr().As16()
	copy(key[:], addr[:])
	binary.LittleEndian.PutUint64(key[16:], s.op)
	if s.operation {
		key[24] = 1
	}
	return table.NewHash(maphash.Bytes(g.seeds[2], key[:]), maphash.Bytes(g.seeds[3], key[:]))
}

// Check takes one token of the endpoint if it has one: "192.0.2.1:4711", "[2001:db8::1]:80", "2001:db8::1" or any other name,
// which is taken as it is. It never waits. The error is ErrNoEndpoint for an empty name, of a guard that
// is not closed, otherwise nil.
//
// RetryAfter depends on the reason of a refusal:
//   - ReasonSoftThrottle: the wait for the next token.
//   - ReasonHardLockout: the rest of the lockout, rounded up to a millisecond; if HardLockout is 0, the wait for the next token.
//     Tokens come back during a lockout too, but Remaining is 0 until its end.
//   - ReasonTrackingCap: HardLockout. The endpoint is new, MaxTrackedEndpoints are tracked and none of them can be forgotten. If
//     HardLockout is 0, it is the wait until one can be forgotten, as known up to 100 ms ago.
//   - ReasonClosed: 0.
func (g *Guard) Check(endpoint string) (weir.Decision, error) {
	if g.closed.Load() {
		return g.closedDecision(), nil
	}
	s, ok := g.endpoint(endpoint)
	if !ok {
		return g.refusal(weir.ReasonInvalid, weir.Never), ErrNoEndpoint
	}
	return g.check(&s), nil
}

// CheckAddr is Check for an address. The error is ErrNoEndpoint for an address that is not valid, otherwise nil.
func (g *Guard) CheckAddr(addr netip.Addr) (weir.Decision, error) {
	return g.checkNetwork(subject{}, addr)
}

// CheckOperation is CheckAddr with a bucket, violations and lockouts for each operation of the address, apart from those
// that the address itself has.
func (g *Guard) CheckOperation(op uint64, addr netip.Addr) (weir.Decision, error) {
	return g.checkNetwork(subject{operation: true, op: op}, addr)
}

func (g *Guard) checkNetwork(s subject, addr netip.Addr) (weir.Decision, error) {
	if g.closed.Load() {
		return g.closedDecision(), nil
	}
	if s.network = g.prefixes.Mask(addr); !s.network.IsValid() {
		return g.refusal(weir.ReasonInvalid, weir.Never), ErrNoEndpoint
	}
	return g.check(&s), nil
}

func (g *Guard) refusal(reason weir.Reason, retry time.Duration) weir.Decision {
	return weir.Decision{Reason: reason, Limit: int64(g.o.CapacityTokens), RetryAfter: retry, Policy: g.o.Name}
}

func (g *Guard) closedDecision() weir.Decision { return g.refusal(weir.ReasonClosed, 0) }

// Credit is the Remaining of a decision as a wire format of 16 bits needs it: 65535 stands for that and more.
func Credit(d weir.Decision) uint16 { return uint16(min(max(d.Remaining, 0), math.MaxUint16)) }

func (g *Guard) check(s *subject) (d weir.Decision) {
	h := g.hash(s)
	shard := g.states.Lock(h)
	now := g.now()
	slot := shard.Find(h)
	isNew := slot == nil
	if isNew {
		if shard, slot, now = g.enter(shard, h, now); slot == nil {
			g.capped.Add()
			return g.cappedDecision(now)
		}
	}
	state := (*entry)(slot.State())
	earlier := g.arrive(state, now)
	v := g.decide(state, now, &d)
	if isNew || earlier || v == forgiven {
		shard.Due(h, g.forgettableAt(state))
	}
	shard.Unlock()
	switch {
	case d.Allowed:
		g.allowed.Add()
		if isNew {
			g.offer(h, s)
		}
		return d
	case d.Reason == weir.ReasonSoftThrottle:
		g.throttled.Add()
	default:
		g.lockedOut.Add()
		if v == lockout {
			g.lockouts.Add()
		}
	}
	if len(s.name) <= names.MaxLength {
		g.names.Note(h, *s, subject.keep, rand.Uint64()) //nolint:gosec // no secret
	}
	return d
}

// offer remembers the name of a new endpoint, while there is room.
func (g *Guard) offer(h table.Hash, s *subject) {
	if len(s.name) <= names.MaxLength {
		g.names.Offer(h, *s, subject.keep)
	}
}

// enter makes room for an endpoint that is not tracked. The slot is nil if there is none, and then the shard is not locked.
func (g *Guard) enter(shard *table.Shard, h table.Hash, now int64) (*table.Shard, table.Slot, int64) {
	slot := shard.Add(h, 0, now)
	if slot == nil {
		shard.Unlock()
		if !g.states.Reclaim(now) {
			return nil, nil, now
		}
		shard = g.states.Lock(h)
		now = g.now()
		if known := shard.Find(h); known != nil { // another caller was first
			return shard, known, now
		}
		if slot = shard.Add(h, 0, now); slot == nil { // and another one took the place
			shard.Unlock()
			return nil, nil, now
		}
	}
	g.begin((*entry)(slot.State()), now)
	return shard, slot, now
}

// When there is room for a new endpoint is looked up in at most scansForRetry parts of the table, as often as lookupPause allows.
// A part has up to 2048 places, so this takes a hundredth of a processor at most, however many knock.
const (
	scansForRetry = 64
	lookupPause   = 100 * time.Millisecond
)

func (g *Guard) cappedDecision(now int64) weir.Decision {
	if g.o.HardLockout > 0 {
		return g.refusal(weir.ReasonTrackingCap, ceilMillisecond(int64(g.o.HardLockout)))
	}
	if last := g.sharpened.Load(); now-last >= int64(lookupPause) && g.sharpened.CompareAndSwap(last, now) {
		g.states.Sharpen(scansForRetry)
	}
	wait := weir.Never
	if at := g.states.NextFresh(); at != math.MaxInt64 {
		// What seemed to be due was not found in time, or taken by another new endpoint: an instant later is soon enough.
		wait = time.Duration(max(at-now, int64(time.Millisecond)))
	}
	return g.refusal(weir.ReasonTrackingCap, min(wait, g.maxWait()))
}

// Peek returns what Check would, and changes nothing. Remaining is the number of tokens now. It does not check that a new
// endpoint would find room.
func (g *Guard) Peek(endpoint string) (weir.Decision, error) {
	s, ok := g.endpoint(endpoint)
	return g.peek(&s, ok)
}

// PeekOperation returns what CheckOperation would, like Peek.
func (g *Guard) PeekOperation(op uint64, addr netip.Addr) (weir.Decision, error) {
	s := subject{network: g.prefixes.Mask(addr), operation: true, op: op}
	return g.peek(&s, s.network.IsValid())
}

func (g *Guard) peek(s *subject, ok bool) (weir.Decision, error) {
	switch {
	case g.closed.Load():
		return g.closedDecision(), nil
	case !ok:
		return g.refusal(weir.ReasonInvalid, weir.Never), ErrNoEndpoint
	}
	h := g.hash(s)
	shard := g.states.Lock(h)
	defer shard.Unlock()
	now := g.now()
	var state entry
	if slot := shard.Find(h); slot != nil {
		state = entry(slot.State())
	} else {
		g.begin(&state, now)
	}
	g.arrive(&state, now)
	before := g.algorithm.Peek(state.bucket(now), now, 0)
	var d weir.Decision
	if g.decide(&state, now, &d); d.Allowed { // the token is not taken
		d.Remaining, d.ResetAfter = before.Remaining, before.ResetAfter
	}
	return d, nil
}

// Unblock lifts the lockout of an endpoint, and forgets its violations and how often it was locked out. Its tokens
// stay as they are. It reports whether the endpoint was locked out.
func (g *Guard) Unblock(endpoint string) bool {
	s, _ := g.endpoint(endpoint)
	return g.unblock(&s)
}

// UnblockOperation is Unblock for the operation of an address.
func (g *Guard) UnblockOperation(op uint64, addr netip.Addr) bool {
	return g.unblock(&subject{network: g.prefixes.Mask(addr), operation: true, op: op})
}

func (g *Guard) unblock(s *subject) bool {
	h := g.hash(s)
	shard := g.states.Lock(h)
	defer shard.Unlock()
	slot := shard.Find(h)
	if slot == nil {
		return false
	}
	state := (*entry)(slot.State())
	now := g.now()
	was := state.blocked(now)
	state.forgive(now)
	shard.Due(h, g.forgettableAt(state))
	return was
}

// Reset forgets an endpoint, which is then a new one, and reports whether it was tracked.
func (g *Guard) Reset(endpoint string) bool {
	s, _ := g.endpoint(endpoint)
	return g.reset(&s)
}

// ResetOperation is Reset for the operation of an address.
func (g *Guard) ResetOperation(op uint64, addr netip.Addr) bool {
	return g.reset(&subject{network: g.prefixes.Mask(addr), operation: true, op: op})
}

func (g *Guard) reset(s *subject) bool {
	h := g.hash(s)
	shard := g.states.Lock(h)
	defer shard.Unlock()
	return shard.Remove(h)
}

// Quota is the limit of each endpoint: CapacityTokens, and the time in which an empty bucket regains them, rounded up to a
// nanosecond.
func (g *Guard) Quota() (permits int64, window time.Duration) {
	return g.algorithm.Burst(), g.algorithm.FillTime()
}
