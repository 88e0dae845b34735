package weir

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/table"
)

// terms are a limit that has been checked, as keys are held to it.
type terms struct {
	limit   Limit
	permits int64
	refill  time.Duration // in which all permits come back
	law     algo.Law
	bucket  algo.TokenBucket
	table   algo.TableBucket // the law, of a bucket; nil for all others
	most    int64            // nanoseconds that a bucket can lack; 0 for all others

	tag   uint16       // under which keys refer to it
	users atomic.Int64 // how many keys do; negative once the tag may be given to others
	next  atomic.Pointer[succession]
	idle  *atomic.Int64
}

// compile checks l, whose name is of in errors, for keys under the process clock or one that was given. Windows begin at origin.
// Buckets take two words where they can if they may be narrow.
func (l Limit) compile(of string, origin int64, narrow, given bool) (*terms, error) {
	c := l.in()
	law, err := c.law(of, origin)
	if err != nil {
		return nil, err
	}
	t := &terms{limit: l, permits: l.Permits(), refill: c.rate.Period, law: law}
	switch c.algorithm {
	case AlgorithmTokenBucket:
		t.bucket, err = algo.NewTokenBucket(c.rate.Permits, c.rate.Period, c.permits)
		t.refill, t.table = t.bucket.FillTime(), t.bucket.TableLaw(narrow)
		t.law = t.table
	case AlgorithmSlidingCounter:
		t.refill = 2 * c.rate.Period
	case AlgorithmCalendarWindow:
		now := origin
		if !given {
			now, t.law = time.Now().UnixNano(), c.byWall(law)
		}
		t.refill = c.lengthFrom(now)
	default:
	}
	return t, err
}

// The tag of a key says which terms its state is held to, or that the state is in a gate.
const (
	baseTag   = 0
	raisedTag = math.MaxUint16
)

// lacks is how many nanoseconds a bucket lacks that owes debt permits.
func (t *terms) lacks(debt int64) int64 {
	owed := t.bucket.Wait(algo.TokenBucketState{}, 0, t.permits+debt)
	return int64(t.refill + min(owed, algo.MaxFill) + 1)
}

// fresh is what the algorithm says of a key that has never been seen. More than 0 permits are not taken.
func (t *terms) fresh(n int64) algo.Result {
	r := algo.Result{Allowed: n <= t.permits, Remaining: t.permits}
	if !r.Allowed {
		r.RetryAfter = Never
	}
	return r
}

// under is what permits of a key were taken under: the key, its limit, and how often states have moved to another one, and
// keys have been reset, by then.
type under struct {
	key    table.Hash
	terms  *terms
	moves  uint32
	resets uint64
}

func faster(a, b Rate) bool {
	hiA, loA := bits.Mul64(uint64(a.Permits), uint64(b.Period))
	hiB, loB := bits.Mul64(uint64(b.Permits), uint64(a.Period))
	return hiA > hiB || hiA == hiB && loA > loB
}

// elsewhere reports whether a bucket lacks more than it can: the process clock stands elsewhere in a bubble of testing/synctest.
func (t *terms) elsewhere(state []uint64, now int64) bool {
	return t.most > 0 && t.law.FreshAt(state)-now > t.most
}

// evicted are the users of terms whose tag may be given to others.
const evicted = -1 << 40

// untagged reports whether there was no tag for t, as keys have too many other limits.
func (t *terms) untagged() bool { return t.tag == raisedTag }

// enter counts a key that begins to be held to t. It returns false if t was evicted meanwhile.
func (t *terms) enter() bool {
	if t.tag == baseTag {
		return true
	}
	for {
		users := t.users.Load()
		if users < 0 {
			return false
		}
		if t.users.CompareAndSwap(users, users+1) {
			return true
		}
	}
}

// leave is the opposite of enter.
func (t *terms) leave() {
	if t.tag != baseTag && t.users.Add(-1) == 0 {
		t.idle.Add(1)
	}
}

// succession is what terms were replaced by, and when.
type succession struct {
	by *terms
	at int64
}
