package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
)

// ReplicasOptions configure a [Replicas].
type ReplicasOptions struct {
	// Group names the fleet: processes of the same group that share a store count one another. From 1 to 64 bytes. Default:
	// "fleet".
	Group string
	// Interval is how often, at least, a process reports that it is alive: from 10 ms to 1 h. Default: 2 s.
	Interval time.Duration
	// Expiry is how long a process counts after its last report: from 2 x Interval to 24 h. Default: 3 x Interval.
	Expiry time.Duration
	// Assumed is the number of processes until the store has been asked for the first time: from 1 to 10,000. A process that
	// starts while the store is unavailable has no other way to know. Default: 1.
	Assumed int
	// Disabled counts no processes and writes nothing: there are always as many as Assumed.
	Disabled bool
}

// checked fills in the defaults, or returns an *[weir.OptionError].
func (o ReplicasOptions) checked() (ReplicasOptions, error) {
	wrong := func(option, value, accepted string) error {
		return &weir.OptionError{Option: "ReplicasOptions." + option, Value: value, Accepted: accepted}
	}
	if o.Group == "" {
		o.Group = "fleet"
	}
	if o.Interval == 0 {
		o.Interval = 2 * time.Second
	}
	if o.Expiry == 0 {
		o.Expiry = 3 * o.Interval
	}
	if o.Assumed == 0 {
		o.Assumed = 1
	}
	switch {
	case len(o.Group) > 64:
		return o, wrong("Group", fmt.Sprintf("of %d bytes", len(o.Group)), "from 1 to 64 bytes")
	case o.Interval < 10*time.Millisecond || o.Interval > time.Hour:
		return o, wrong("Interval", o.Interval.String(), "from 10ms to 1h")
	case o.Expiry < 2*o.Interval || o.Expiry > MostExpiry:
		return o, wrong("Expiry", o.Expiry.String(), "from 2 x Interval, which is "+(2*o.Interval).String()+", to 24h")
	case o.Assumed < 1 || o.Assumed > MostReservations:
		return o, wrong("Assumed", fmt.Sprint(o.Assumed), fmt.Sprintf("from 1 to %d", MostReservations))
	}
	return o, nil
}

// Replicas counts the processes of a group that are alive, through the store that they share. Each has a reservation of a
// concurrency limit, under the policy "weir-replicas" and the key Group, and makes a new one before the old one expires.
//
// [Replicas.Live] never asks the store. The others count a process that starts within Interval; they stop counting one that is
// closed within Interval, and one that dies within Expiry + Interval. For two round trips in each Interval a process may be
// counted twice.
//
// While the store is unavailable the last count stays. For Expiry after it came back, or lost its data, the count only grows,
// until the others have reported. So the count errs upwards, which is the stricter side for a limit that is divided by it. The
// exception is a process that starts while the store is unavailable.
//
// More than 10,000 processes are counted as 10,000. The zero Replicas is not usable: call [NewReplicas].
type Replicas struct {
	store  Home
	o      ReplicasOptions
	charge Charge

	live atomic.Int64
	ctx  context.Context
	end  context.CancelFunc
	done sync.WaitGroup

	held    Hold
	known   bool          // whether the store has answered yet
	growing time.Duration // for how long the count still only grows
}

// replicasPolicy is the policy of the reservations.
const replicasPolicy = "weir-replicas"

// NewReplicas registers this process in the store and returns the count of its group, or an *[weir.OptionError]. It starts one
// goroutine, unless it is disabled, which Close ends.
func NewReplicas(s Home, o ReplicasOptions) (*Replicas, error) {
	r, err := newReplicas(s, o)
	if err != nil {
		return nil, err
	}
	r.start()
	return r, nil
}

// newReplicas is NewReplicas before it is started.
func newReplicas(s Home, o ReplicasOptions) (*Replicas, error) {
	o, err := o.checked()
	if err != nil {
		return nil, err
	}
	if err := mustHave("NewReplicas.s", s); err != nil {
		return nil, err
	}
	r := &Replicas{store: s, o: o, charge: Charge{
		Policy: replicasPolicy, Key: o.Group, N: 1,
		Limit: weir.AtOnce(MostReservations),
	}}
	r.live.Store(int64(o.Assumed))
	r.ctx, r.end = context.WithCancel(context.Background())
	return r, nil
}

func (r *Replicas) start() {
	if !r.o.Disabled {
		r.done.Go(func() { r.run(r.ctx) })
	}
}

// Live is how many processes are alive, this one included, as far as is known: at least 1. It costs nothing.
func (r *Replicas) Live() int { return int(r.live.Load()) }

// Close reports that this process is not alive any more, for at most a second, and ends the goroutine. Closing twice is harmless.
// It does not close the store.
func (r *Replicas) Close() error {
	r.end()
	r.done.Wait()
	return nil
}

// run says that the process is alive until ctx ends.
func (r *Replicas) run(ctx context.Context) {
	timer := time.NewTimer(math.MaxInt64)
	defer timer.Stop()
	for {
		r.beat(ctx)
		pause := r.o.Interval/2 + jittered(r.o.Interval)/2
		timer.Reset(pause)
		select {
		case <-timer.C:
			r.growing = max(r.growing-pause, 0)
		case <-ctx.Done():
			if r.held.ID != "" {
				short, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
				_ = Cancel(short, r.store, r.held) // or it expires
				cancel()
			}
			return
		}
	}
}

// beat says that the process is alive and counts. The new reservation comes before the end of the old one, so that the process
// is never missing.
func (r *Replicas) beat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Interval)
	defer cancel()
	var decisions [1]weir.Decision
	held, err := Reserve(ctx, r.store, []Charge{r.charge}, decisions[:], r.o.Expiry)
	if err != nil {
		r.distrust()
		return
	}
	old := r.held
	if held.ID != "" { // or there are more than can be counted
		r.held = held
		if failed := Cancel(ctx, r.store, old); failed != nil && old.ID != "" {
			r.distrust()
			if !errors.Is(failed, ErrNotReserved) {
				return
			}
		}
	}
	state, err := Inspect(ctx, r.store, r.charge)
	if err != nil {
		r.distrust()
		return
	}
	live := max(int64(state.Reservations), 1)
	if r.growing > 0 {
		live = max(live, r.live.Load())
	}
	if !r.known {
		r.known = true
		live = max(live, int64(r.o.Assumed))
		r.growing = r.o.Expiry
	}
	r.live.Store(live)
}

// distrust has the count only grow until all others have had the time to say that they are alive.
func (r *Replicas) distrust() { r.growing = r.o.Expiry }
