package policy_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// costOf is a cost that is made by a function.
type costOf func(r *policy.Request) (int64, error)

func (f costOf) Int(r *policy.Request) (int64, error) { return f(r) }
func (costOf) String() string                         { return "costOf" }

// plainBatch is several requests as one would write them down: what each of them asks of each bucket.
type plainBatch []map[string]int64

// sums is what all of them ask together.
func (b plainBatch) sums() map[string]int64 {
	all := map[string]int64{}
	for _, r := range b {
		for bucket, n := range r {
			all[bucket] += n
		}
	}
	return all
}

// batches is an engine, and all its buckets as one would write them down: times are hours, and permits whole.
type batches struct {
	*testing.T

	r      *rand.Rand
	e      *policy.Engine
	clock  *manualclock.Clock
	bursts map[string]int64 // of each policy
	left   map[string]int64 // of each policy and key

	requests, refused, denied, exempt, unlimited, watched uint64
	granted                                               map[string]uint64
}

// enforced are the policies that apply to a path, and what each of them is keyed by. All of them count for "total".
var enforced = map[string][]string{
	"/local": {"local"}, "/stored": {"local", "stored"}, "/owned": {"owned"}, "/all": {"local", "stored", "owned"},
}

var batchKeys = []string{"GET", "PUT", "POST"}

func batchSet(bursts map[string]int64) *policy.Set {
	cost := costOf(func(r *policy.Request) (int64, error) { return int64(len(r.Query)), nil })
	keyed := func(name string) policy.Policy {
		return policy.Policy{Name: name, Limits: one(perHour(bursts[name])), Key: policy.MethodText(), Cost: cost}
	}
	local, total, watched := keyed("local"), keyed("total"), keyed("watched")
	local.Parent, total.Key, total.Cost, watched.Mode = "total", nil, nil, policy.ModeShadow
	s := &policy.Set{Policies: []policy.Policy{local, total, watched, shared(keyed("stored"))[0], durably(keyed("owned"))[0]}}
	for path, names := range enforced {
		s.Rules = append(s.Rules, policy.Rule{Name: path, Match: policy.Match{Paths: []string{path}}, Limits: uses(names...)})
	}
	s.Rules = append(s.Rules,
		policy.Rule{Name: "again", Match: policy.Match{Paths: []string{"/all"}}, Limits: uses("local", "watched")},
		policy.Rule{Name: "free", Match: policy.Match{Paths: []string{"/free"}}, Exempt: true},
		policy.Rule{Name: "denied too", Match: policy.Match{Paths: []string{"/denied"}}, Limits: uses("local", "stored", "owned", "watched")},
		policy.Rule{Name: "denied", Match: policy.Match{Paths: []string{"/denied"}}, Deny: true})
	return s
}

// batch makes requests, and what they ask for.
func (b *batches) batch() (requests []*policy.Request, plain plainBatch) {
	paths := []string{"/local", "/stored", "/owned", "/all", "/free", "/none"}
	for range b.r.IntN(6) {
		path := paths[b.r.IntN(len(paths))]
		if b.r.IntN(20) == 0 {
			path = "/denied"
		}
		r := &policy.Request{
			Path: path, Method: batchKeys[b.r.IntN(len(batchKeys))], Query: "xxxx"[:b.r.IntN(5)],
		}
		asks := map[string]int64{}
		for _, name := range enforced[r.Path] {
			asks[name+" "+r.Method] = int64(len(r.Query))
			if name == "local" {
				asks["total "] = int64(len(r.Query))
			}
		}
		requests, plain = append(requests, r), append(plain, asks)
	}
	return requests, plain
}

// grants reports whether a bucket has what is asked of it.
func (b *batches) grants(bucket string, n int64) bool { return b.left[bucket] >= max(n, 1) }

// someDenied reports whether a rule denies one of the requests.
func someDenied(requests []*policy.Request) bool {
	return slices.ContainsFunc(requests, func(r *policy.Request) bool { return r.Path == "/denied" })
}

func (b *batches) step(step int) {
	requests, plain := b.batch()
	sums := plain.sums()
	want := !someDenied(requests)
	for bucket, n := range sums {
		want = want && b.grants(bucket, n)
	}
	v := new(policy.Verdict)
	var watched map[string]int64
	how := b.r.IntN(5)
	switch how {
	case 4:
		b.debit(step, v, requests, plain)
		return
	case 0:
		b.e.PeekAll(b.Context(), requests, v)
	case 1:
		b.e.TakeAll(b.Context(), requests, v)
	default:
		b.e.ReserveAll(b.Context(), requests, v)
	}
	if v.Allowed != want {
		b.Fatalf("step %d: %v, want %v: %v of %v: %+v", step, v.Allowed, want, sums, b.left, v.Decision())
	}
	if how > 0 {
		b.count(requests, plain, want)
	}
	if how > 0 && want {
		for bucket, n := range sums {
			b.left[bucket] -= n
		}
		watched = b.watch(requests, false)
	}
	b.compareAnswers(step, v, requests, plain, sums, how > 0 && want)
	actual := make([]int64, len(requests))
	for i := range actual {
		actual[i] = b.r.Int64N(int64(len(requests[i].Query) + 1))
	}
	switch how {
	case 0, 1:
		v.Release()
	case 2:
		v.Cancel()
		if want {
			b.giveBack(sums)
			b.giveBack(watched)
		}
	case 3:
		v.Commit(func(p *policy.Part) int64 { return actual[p.Request] })
		if want {
			for i, asks := range plain {
				unused := map[string]int64{}
				for bucket, n := range asks {
					unused[bucket] = n - actual[i]
				}
				if bucket := "watched " + requests[i].Method; requests[i].Path == "/all" && watched[bucket] > 0 {
					unused[bucket] = int64(len(requests[i].Query)) - actual[i]
				}
				b.giveBack(unused)
			}
		}
	}
	b.compareBuckets(step)
}

func (b *batches) giveBack(all map[string]int64) {
	for bucket, n := range all {
		b.left[bucket] += n
	}
}

// count counts what the report should say.
func (b *batches) count(requests []*policy.Request, plain plainBatch, granted bool) {
	for i, r := range requests {
		b.requests++
		switch {
		case r.Path == "/free":
			b.exempt++
		case r.Path == "/none":
			b.unlimited++
		case !granted:
			b.refused++
		}
		if r.Path == "/denied" {
			b.denied++
		}
		for bucket := range plain[i] {
			if granted {
				b.granted[bucket[:lastSpace(bucket)]]++
			}
		}
	}
}

// watch charges the policy in shadow for requests that were granted, or were spent, and returns what.
func (b *batches) watch(requests []*policy.Request, spent bool) (sums map[string]int64) {
	sums = map[string]int64{}
	for _, r := range requests {
		if r.Path == "/all" {
			sums["watched "+r.Method] += int64(len(r.Query))
			b.watched++
		}
	}
	for bucket, n := range sums {
		switch {
		case spent:
			b.left[bucket] = max(b.left[bucket]-n, -b.bursts["watched"])
		case b.grants(bucket, n):
			b.left[bucket] -= n
		default:
			delete(sums, bucket)
		}
	}
	return sums
}

// compareAnswers compares what each of the requests was told. Where one was refused before a store was asked, it is not known
// whether that would have granted.
func (b *batches) compareAnswers(
	step int, v *policy.Verdict, requests []*policy.Request, plain plainBatch, sums map[string]int64, taken bool,
) {
	parts := 0
	for i := range v.Parts {
		p := &v.Parts[i]
		bucket := p.Policy.Name + " " + string(p.Key)
		if n, ok := plain[p.Request][bucket]; !ok || n != p.Cost {
			b.Fatalf("step %d: request %d: a part for %q that costs %d, want %v", step, p.Request, bucket, p.Cost, plain[p.Request])
		}
		if !p.Unasked && (taken || p.Policy.Consistency == policy.ConsistencyLocal && p.Policy.Durability == policy.DurabilityMemory) &&
			p.Decision.Remaining != max(b.left[bucket], 0) {
			b.Fatalf("step %d: %q has %d left, want %d: %+v", step, bucket, p.Decision.Remaining, b.left[bucket], p.Decision)
		}
		parts++
	}
	for i, r := range requests {
		parts -= len(plain[i])
		d, limited := v.Answer(i)
		isDenied := r.Path == "/denied"
		if limited != (isDenied || len(plain[i]) > 0) || v.ExemptOf(i) != (r.Path == "/free") ||
			(v.DeniedBy(i) != nil) != isDenied || (d.Reason == weir.ReasonDenied) != isDenied {
			b.Fatalf("step %d: request %d to %s: limited %v, exempt %v, %+v", step, i, r.Path, limited, v.ExemptOf(i), d)
		}
		want := !isDenied
		for bucket := range plain[i] {
			want = want && (taken || b.grants(bucket, sums[bucket]))
		}
		if want && !d.Allowed || v.Allowed && !d.Allowed {
			b.Fatalf("step %d: request %d: %+v, want %v of %v", step, i, d, plain[i], b.left)
		}
	}
	if parts != 0 {
		b.Fatalf("step %d: %d parts too many", step, parts)
	}
}

func (b *batches) compareBuckets(step int) {
	for bucket, want := range b.left {
		at := lastSpace(bucket)
		s, err := b.e.Inspect(b.Context(), bucket[:at], "", bucket[at+1:])
		if err != nil || s.Decision.Remaining != max(want, 0) {
			b.Fatalf("step %d: %q has %d left, want %d: %v", step, bucket, s.Decision.Remaining, want, err)
		}
	}
}

func (b *batches) compareReport(name string) {
	r := b.e.Report()
	if r.Requests != b.requests || r.Refused != b.refused || r.Denied != b.denied || r.Exempt != b.exempt || r.Unlimited != b.unlimited || r.Canceled != 0 {
		b.Errorf("%s: %+v, want %d requests, %d refused, %d denied, %d exempt, %d unlimited", name, r, b.requests, b.refused, b.denied, b.exempt, b.unlimited)
	}
	for _, p := range r.Policies {
		if p.Mode == policy.ModeEnforce && p.Allowed != b.granted[p.Name] {
			b.Errorf("%s: %s has granted %d, want %d", name, p.Name, p.Allowed, b.granted[p.Name])
		}
		if p.Mode == policy.ModeShadow && p.Difference.Requests != b.watched {
			b.Errorf("%s: %s was asked %d times, want %d", name, p.Name, p.Difference.Requests, b.watched)
		}
	}
}
