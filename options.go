package weir

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/algo"
)

// Options configure a [Limiter] or a [Concurrency]. The zero value is a limiter without a queue.
type Options struct {
	// Name is the Policy of the decisions. Default: "".
	Name string
	// QueueLimit bounds the sum of the permits that callers of Acquire, Reserve and Wait wait for: from 0 to 10^15. Default: 0,
	// such a call fails with [ErrNoQueue] where it would have to wait.
	QueueLimit int64
	// NewestFirst is whether the queue serves the last to arrive first, and evicts the one that has waited longest when it is
	// full: under overload those are served that have not yet given up. Default: false, callers are served in order of arrival,
	// and a newcomer never overtakes the queue, even if its permits are available.
	NewestFirst bool
	// MaxDebt is how many permits commits may charge beyond those available: from 1 to 10^15, or NoDebt. Default: the permits
	// of the limit. A window carries its debt into those that follow. Of a Concurrency it must be 0.
	MaxDebt int64
	// Clock replaces the monotonic clock of the process. With it every call takes a lock, and deadlines of contexts, which are in
	// real time, are not compared with the wait. For a [CalendarWindow] it replaces the wall clock: its Now is in nanoseconds
	// since 1970-01-01 UTC. Default: nil.
	Clock Clock
}

// KeyedOptions configure a [Keyed].
type KeyedOptions struct {
	// Name is the Policy of the decisions. Default: "".
	Name string
	// QueueLimit bounds, for each key, the sum of the permits that callers of Acquire, Reserve and Wait wait for: from 0 to
	// 10^15. A queue costs nothing while it is empty. Default: 0, such a call fails with [ErrNoQueue] where it would have to
	// wait.
	QueueLimit int64
	// NewestFirst is whether the queue of a key serves the last to arrive first: see [Options]. Default: false.
	NewestFirst bool
	// MaxDebt is how many permits commits may charge a key beyond those available: from 1 to 10^15, or NoDebt. Default:
	// as many as its limit.
	MaxDebt int64
	// MaxKeys is how many keys are tracked at a time: from 1 to 2^31. Keys that behave like new ones, because all their
	// permits are back, are forgotten to make room; no other key ever is. Default: 1,000,000.
	MaxKeys int
	// AdmitWhenFull is whether new keys get their permits without being tracked when MaxKeys are tracked and none of them can be
	// forgotten: they are not limited until there is room. Default: false, they are refused with ReasonTableFull, so that clients
	// cannot escape the limit by making up keys. RetryAfter is then until a key can be forgotten at the earliest, or 1 s where
	// none can before a lease is released.
	AdmitWhenFull bool
	// MaxNames is how many keys are remembered by name, so that an operator sees which they are: from 1 to 65536. It
	// is those that are refused most. Keys of more than 256 bytes have no name. Default: 1024.
	MaxNames int
	// Clock replaces the monotonic clock of the process. Default: nil.
	Clock Clock
}

// checkBounds sets defaults of those options that can be changed while a limiter works, and returns what cannot be used.
func (o *KeyedOptions) checkBounds(of string) error {
	if o.MaxKeys == 0 {
		o.MaxKeys = defaultMaxKeys
	}
	if o.MaxKeys < 1 || int64(o.MaxKeys) > 1<<31 {
		return &OptionError{of + ".MaxKeys", fmt.Sprint(o.MaxKeys), "from 1 to 2147483648"}
	}
	if o.QueueLimit < 0 || o.QueueLimit > algo.MaxPermits {
		return &OptionError{of + ".QueueLimit", fmt.Sprint(o.QueueLimit), "from 0 to 10^15 permits"}
	}
	_, err := maxDebt(of, o.MaxDebt, 0)
	return err
}

// checkBounds is inside.CheckBounds.
func checkBounds(o KeyedOptions) error { return o.checkBounds("Bounds") }

// NoDebt as MaxDebt keeps commits from charging more than what is available.
const NoDebt int64 = -1

// maxDebt is what the option MaxDebt means.
func maxDebt(of string, option, limit int64) (int64, error) {
	switch {
	case option == 0:
		return limit, nil
	case option == NoDebt:
		return 0, nil
	case option < 0 || option > algo.MaxPermits:
		return 0, &OptionError{of + ".MaxDebt", fmt.Sprint(option), "from 1 to 10^15 permits, 0 for the limit, or NoDebt"}
	}
	return option, nil
}

const (
	defaultMaxKeys = 1_000_000
	mostShards     = 256
	keysPerShard   = 1024
	linger         = int64(10 * time.Second)
)
