package policy

import (
	"hash/maphash"
	"maps"
	"sync/atomic"

	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/keyset"
)

// overrides are those of the keys of a policy. Requests look them up without a lock; changes are made under Engine.loading.
type overrides struct {
	clock *clock.Steady
	table atomic.Pointer[overrideTable] // nil if there are none: that is all that requests look at then
}

// overrideTable has maps that are never changed: a new one takes the place of an old one, of which there are so many that it is
// small.
type overrideTable struct {
	seed   maphash.Seed
	shards [overrideShards]atomic.Pointer[map[string]*override]
	count  atomic.Int64
}

const overrideShards = 1024

// override is one of them. It does not change.
type override struct {
	Override

	variant variant     // its Limits
	until   int64       // by the clock of the engine
	stop    func() bool // of the timer at its end
}

// end stops the timer. It may be called of nil.
func (x *override) end() {
	if x != nil && x.stop != nil {
		x.stop()
	}
}

// of is the override that applies to a key now, or nil.
func (o *overrides) of(key []byte) *override {
	t := o.table.Load()
	if t == nil {
		return nil
	}
	return o.find(t, key)
}

func (o *overrides) find(t *overrideTable, key []byte) *override {
	all := t.shards[maphash.Bytes(t.seed, key)%overrideShards].Load()
	if all == nil {
		return nil
	}
	if x := (*all)[string(key)]; x != nil && x.until > o.clock.Now() {
		return x
	}
	return nil
}

// get is the override that there is, whether it still holds or not, or nil.
func (o *overrides) get(key string) *override {
	t := o.table.Load()
	if t == nil {
		return nil
	}
	if all := t.shard(key).Load(); all != nil {
		return (*all)[key]
	}
	return nil
}

func (t *overrideTable) shard(key string) *atomic.Pointer[map[string]*override] {
	return &t.shards[maphash.String(t.seed, key)%overrideShards]
}

// sum is how many there are.
func (o *overrides) sum() int64 {
	if t := o.table.Load(); t != nil {
		return t.count.Load()
	}
	return 0
}

func (o *overrides) each(f func(x *override)) {
	t := o.table.Load()
	if t == nil {
		return
	}
	for i := range t.shards {
		if all := t.shards[i].Load(); all != nil {
			for _, x := range *all {
				f(x)
			}
		}
	}
}

// put adds an override, or one in the place of that which there is.
func (o *overrides) put(x *override) {
	t := o.table.Load()
	if t == nil {
		t = &overrideTable{seed: maphash.MakeSeed()}
	}
	shard := t.shard(x.Key)
	all := map[string]*override{}
	if old := shard.Load(); old != nil {
		all = maps.Clone(*old)
	}
	if all[x.Key] == nil {
		t.count.Add(1)
	}
	all[x.Key] = x
	shard.Store(&all)
	o.table.Store(t)
}

// remove removes an override, if it is still there.
func (o *overrides) remove(x *override) {
	t := o.table.Load()
	if t == nil || o.get(x.Key) != x {
		return
	}
	if t.count.Add(-1) == 0 {
		o.table.Store(nil)
		return
	}
	shard := t.shard(x.Key)
	all := maps.Clone(*shard.Load())
	delete(all, x.Key)
	shard.Store(&all)
}

// lifted reports whether an override exempts the key of an item from the policy.
func (it *item) lifted() bool { return it.override != nil && it.override.Unlimited }

// keyed are the limits that apply to a key without an override, unless a tier says otherwise.
func (p *livePolicy) keyed(key string) *variant {
	if x := p.keys[key]; x != nil {
		return x
	}
	return &p.usual
}

// limitsFor are the limits that apply to a key unless a tier says otherwise.
func (p *livePolicy) limitsFor(key string) *variant {
	if x := p.overrides.of([]byte(key)); x != nil && !x.Unlimited {
		return &x.variant
	}
	return p.keyed(key)
}

// apply tells the limits of this process what they hold a key to from now on. If one of them cannot, they stay as they were.
func (p *livePolicy) apply(x, before *override, now int64) error {
	if p.shared {
		return nil
	}
	if x.Unlimited {
		if before != nil {
			p.letGo(before)
		}
		return nil
	}
	for i := range p.limits {
		err := keyset.Of(p.limits[i].state.limiter).Override(x.Key, x.Limits[i].Limit, x.For)
		if err == nil {
			continue
		}
		for j := range i {
			l := p.limits[j].state.limiter
			if rest := before.rest(now); rest > 0 && !before.Unlimited {
				err2 := keyset.Of(l).Override(x.Key, before.Limits[j].Limit, rest)
				_ = err2 // as it was in force, it can be again
			} else {
				keyset.Of(l).Restore(x.Key)
			}
		}
		return err
	}
	return nil
}

// letGo ends what apply has told the limits of this process.
func (p *livePolicy) letGo(x *override) {
	if p.shared || x.Unlimited {
		return
	}
	for i := range p.limits {
		keyset.Of(p.limits[i].state.limiter).Restore(x.Key)
	}
}
