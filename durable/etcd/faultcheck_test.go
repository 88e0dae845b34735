//go:build linux

package etcd_test

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/bounds"
	"github.com/weirhq/weir/internal/rangemax"
)

// check looks whether what callers were granted in a round is within the limits and what the records say.
func (r *round) check() {
	c := r.cluster
	c.tb.Helper()
	c.history.mu.Lock()
	events, terms := slices.Clone(c.history.events), slices.Clone(c.history.terms)
	c.history.mu.Unlock()
	fail := func(format string, args ...any) {
		c.tb.Helper()
		c.tb.Errorf("%s, round %d, %s: %s\n%s", c.name, c.round, r.kind, fmt.Sprintf(format, args...), c.history.said())
	}
	var by [faultKeys][]event
	ids := make(map[string]bool)
	for _, e := range events {
		by[e.Key] = append(by[e.Key], e)
		if e.Reason != weir.ReasonNone || e.ID == "" {
			continue
		}
		if ids[e.ID] {
			fail("a reservation was granted twice")
		}
		ids[e.ID] = true
	}
	slack := math.Abs(float64(wallOffset()-r.wall)) + 1e6 // what the clock on the wall was set by, which the limits go by
	for kind, rate := range map[int]float64{bucketKey: bucketRate, queuedKey: queuedRate} {
		burst := map[int]float64{bucketKey: bucketBurst, queuedKey: queuedBurst}[kind]
		if most, over := bucketDemand(by[kind], rate/1e9, burst); over > rate/1e9*slack {
			fail("%s: %.1f permits more were granted than the bucket had: %s", keyNames[kind], over, most)
		}
	}
	if over := windowDemand(by[windowKey], r.wall, int64(slack)); over != "" {
		fail("%s: %s", keyNames[windowKey], over)
	}
	r.checkQuota(by[quotaKey], len(terms), fail)
	r.checkReserved(by[reservedKey], len(terms), fail)
	if wrong := outOfOrder(by[queuedKey]); wrong != "" {
		fail("%s", wrong)
	}
	if wrong := deposed(events); wrong != "" {
		fail("%s", wrong)
	}
	r.service = withoutService(by[busyKey], r.fault, r.away)
	counts := make(map[string]int)
	for _, e := range events {
		counts[keyNames[e.Key]+" "+e.Reason.String()]++
		if e.Reason == weir.ReasonNone {
			totals.granted.Add(1)
		}
	}
	if len(terms) > manyTerms {
		c.tb.Logf("there were %d terms\n%s", len(terms), c.history.said())
	}
	c.tb.Logf("%s, round %d, %s: %v without service; %d events, %d terms; %v", c.name, c.round, r.kind,
		r.service.Round(time.Millisecond), len(events), len(terms), counts)
}

// manyTerms is how many terms a round has at most whose logs are not shown.
const manyTerms = 4

// certain tells outcomes that took nothing from those of which that is not known.
func certain(o weir.Reason) bool {
	return o == weir.ReasonLimited || o == weir.ReasonNever || o == weir.ReasonQueueFull
}

// burned is how many permits an owner burns at most by its end.
func (r *round) burned(limit int64) int64 {
	k := r.cluster.reserve
	if k == 0 {
		k = max(1, limit/10)
	}
	return k - 1
}

// checkQuota counts what was granted of a quota, beside what its record says, and looks for an order of all requests in which
// what was said to remain is right.
func (r *round) checkQuota(events []event, terms int, fail func(string, ...any)) {
	var granted, maybe int64
	for _, e := range events {
		if e.Reason == weir.ReasonNone {
			granted += e.N
		} else if !certain(e.Reason) {
			maybe += e.N
		}
	}
	taken := quotaPermits - r.left(quotaKey)
	most := granted + maybe + r.least + int64(terms)*r.burned(quotaPermits)
	switch {
	case granted > quotaPermits:
		fail("%d of %d permits of the quota were granted", granted, quotaPermits)
	case taken < granted:
		fail("%d permits of the quota were granted, and the record says %d", granted, taken)
	case taken > most:
		fail("%d permits of the quota are gone, of which %d were granted, and at most %d can be", taken, granted, most)
	}
	totals.quotaTaken.Add(taken)
	totals.quotaBurned.Add(taken - granted)
	var operations []porcupine.Operation
	for _, e := range events {
		if e.Reason == weir.ReasonNone || e.Reason == weir.ReasonLimited {
			operations = append(operations, porcupine.Operation{
				ClientId: e.Process*100 + e.Caller, Input: e.N, Output: e, Call: e.Asked, Return: e.Answered,
			})
		}
	}
	switch porcupine.CheckOperationsTimeout(quotaModel, operations, startDelay) {
	case porcupine.Illegal:
		fail("there is no order of the %d requests for the quota in which their answers are right", len(operations))
	case porcupine.Unknown:
		fail("no order was found of the %d requests for the quota in which their answers are right", len(operations))
	case porcupine.Ok:
	}
	totals.histories.Add(1)
	totals.operations.Add(int64(len(operations)))
}

// quotaModel counts what was granted of a quota: whatever an answer says to remain has to be there. Permits that were burned, and
// requests of which nothing is known, only make what remains less, so they need not be in the history.
var quotaModel = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		taken, n, e := state.(int64), input.(int64), output.(event) //nolint:forcetypeassert // as they were made
		if e.Reason == weir.ReasonNone {
			return taken+n+e.Remaining <= quotaPermits, taken + n
		}
		return taken+e.Remaining <= quotaPermits, taken
	},
}

// checkReserved counts what was reserved, with what it was settled for.
func (r *round) checkReserved(events []event, terms int, fail func(string, ...any)) {
	var least, most int64
	for _, e := range events {
		switch {
		case e.Reason != weir.ReasonNone && certain(e.Reason):
		case e.Reason != weir.ReasonNone:
			most += e.N
		case e.Settled == unsettled:
			least, most = least+e.N, most+e.N
		case e.Settled == committed:
			least, most = least+e.Actual, most+e.Actual
		case e.Settled == unknown:
			most += max(e.N, e.Actual)
		case e.Settled == cancelled:
		}
	}
	taken := reservedPermits - r.left(reservedKey)
	most += 2*r.least + int64(terms)*r.burned(reservedPermits)
	switch {
	case least > reservedPermits:
		fail("%d of %d permits were reserved", least, reservedPermits)
	case taken < least:
		fail("%d permits are reserved, and the record says %d", least, taken)
	case taken > most:
		fail("%d permits are gone of those to be reserved, and at most %d can be", taken, most)
	}
}

// bucketDemand answers by how much requests were granted more than a bucket can have had, whenever between being asked for and
// answered each of them was granted: for all times a and b, those that were asked for after a and answered before b are at most
// the burst and what comes in between.
func bucketDemand(events []event, rate, burst float64) (where string, over float64) {
	var granted []event
	for _, e := range events {
		if e.Reason == weir.ReasonNone && e.N > 0 {
			granted = append(granted, e)
		}
	}
	if len(granted) == 0 {
		return "", 0
	}
	slices.SortFunc(granted, func(a, b event) int { return int(a.Answered - b.Answered) })
	order := make([]int, len(granted))
	for i := range order {
		order[i] = i
	}
	sort.Slice(order, func(i, j int) bool { return granted[order[i]].Asked > granted[order[j]].Asked })
	start := granted[0].Asked
	sums := rangemax.New(len(granted))
	sums.Add(0, len(granted), -absent)
	for _, at := range order {
		e := &granted[at]
		sums.Add(at, len(granted), float64(e.N))
		sums.Add(at, at+1, absent-rate*float64(e.Answered-start))
		if x := sums.Most(0, len(granted)) + rate*float64(e.Asked-start) - burst; x > over {
			over, where = x, fmt.Sprintf("after %v", time.Duration(e.Asked-start))
		}
	}
	return where, over
}

// absent is by how much a sum is lowered that does not count.
const absent = 1e12

// windowDemand looks at the requests that can only have been granted in one window.
func windowDemand(events []event, wall, slack int64) string {
	counts := make(map[int64]int64)
	for _, e := range events {
		from, to := (e.Asked+wall-slack)/int64(windowLength), (e.Answered+wall+slack)/int64(windowLength)
		if e.Reason != weir.ReasonNone || from != to {
			continue
		}
		if counts[from] += e.N; counts[from] > windowPermits {
			return fmt.Sprintf("%d of %d permits were granted in a window", counts[from], windowPermits)
		}
	}
	return ""
}

// outOfOrder looks whether those who waited in one queue, and were granted permits, were so in the order in which they had come.
func outOfOrder(events []event) string {
	type queue struct{ stream, generation int }
	all := make(map[queue][]event)
	for _, e := range events {
		q := queue{e.Stream, e.Generation}
		all[q] = append(all[q], e)
	}
	for q, asked := range all {
		ended := int64(math.MaxInt64) // when the first of them heard that the owner has gone
		for _, e := range asked {
			if e.Reason == weir.ReasonUnavailable || e.Reason == weir.ReasonClosed {
				ended = min(ended, e.Answered)
			}
		}
		slices.SortFunc(asked, func(a, b event) int { return a.Number - b.Number })
		var last event
		for _, e := range asked {
			if e.Reason != weir.ReasonNone || e.Answered >= ended {
				continue
			}
			if e.Expires < last.Expires {
				return fmt.Sprintf("stream %d: number %d was granted %v before number %d", q.stream, e.Number,
					time.Duration(last.Expires-e.Expires), last.Number)
			}
			totals.inOrder.Add(1)
			last = e
		}
	}
	return ""
}

// deposed looks for owners that have granted something for which they were asked after a later owner had granted something.
func deposed(events []event) string {
	var granted []bounds.Event
	for _, e := range events {
		if e.Reason == weir.ReasonNone {
			granted = append(granted, bounds.Event{Sent: e.Asked, Received: e.Answered, N: e.N, Epoch: e.Epoch})
		}
	}
	if b := bounds.Deposed(granted); b.Broken() {
		return fmt.Sprintf("owners have granted %.0f permits for which they were asked up to %v after a later one had granted some",
			b.Permits, b.To-b.From)
	}
	return ""
}

// withoutService is the longest time after a fault without anything being granted to those who are not away.
func withoutService(events []event, fault int64, away []int) time.Duration {
	var times []int64
	for _, e := range events {
		if e.Reason == weir.ReasonNone && !slices.Contains(away, e.Process) {
			times = append(times, e.Answered)
		}
	}
	slices.Sort(times)
	var longest int64
	for i := 1; i < len(times); i++ {
		if times[i] >= fault && fault > 0 {
			longest = max(longest, times[i]-times[i-1])
		}
	}
	return time.Duration(longest)
}
