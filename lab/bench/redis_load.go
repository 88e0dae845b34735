package bench

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// redisLoad is how many callers ask, and for what.
type redisLoad struct {
	name    string
	how     string
	budget  budget // of each key
	keys    int
	callers int
	// all tells that every decision must be granted, and some that there must be refusals too, but for peers.
	all, some bool
}

// The numbers of callers.
func redisCallers() []int { return []int{1, 32, 256} }

const (
	redisKeys = 1024
	// hotRate and hotBurst are a limit that every limiter which asks Redis comes to within a fraction of a second. The burst
	// comes back in 300 ms, so that a measurement does not end where a window does.
	hotRate, hotBurst = 1000, 300
	// plenty is more than anything that asks Redis for each decision can use up of one key, and less than memory can.
	plenty = 1_000_000
)

func redisLoads() (all []redisLoad) {
	for _, callers := range redisCallers() {
		all = append(all, redisLoad{
			name: "many keys", keys: redisKeys, callers: callers, budget: budget{plenty, time.Second, plenty}, all: true,
			how: fmt.Sprintf("%d keys, which each caller asks for in turn, beginning at another one. Each key has a limit of "+
				"%s/s with a burst of as many, which is never reached: every decision must be granted. The keys are known from "+
				"the warm-up.",
				redisKeys, count(plenty)),
		})
	}
	for _, callers := range redisCallers() {
		all = append(all, redisLoad{
			name: "hot key", keys: 1, callers: callers, budget: budget{hotRate, time.Second, hotBurst}, some: true,
			how: fmt.Sprintf("One key with a limit of %s/s and a burst of %d, far below the demand, so that most decisions are "+
				"refusals. A limiter that makes so few decisions that none is refused has granted all of them. The key is new "+
				"when the measurement begins.", count(hotRate), hotBurst),
		})
	}
	for _, callers := range redisCallers() {
		all = append(all, redisLoad{
			name: "hot key, wide", keys: 1, callers: callers, budget: budget{plenty, time.Second, plenty},
			how: fmt.Sprintf("One key with a limit of %s/s and a burst of as many: more than can be asked of Redis, so that all "+
				"that ask it each time are granted all, and less than can be asked of memory. The key is new when the "+
				"measurement begins.",
				count(plenty)),
		})
	}
	return all
}

func (l redisLoad) id() string { return Row{Name: l.name, Goroutines: l.callers}.ID() }

// hot reports whether all callers ask for one key.
func (l redisLoad) hot() bool { return l.keys == 1 }

// names are the keys of a phase: of a hot key each has another one.
func (l redisLoad) names(phase string) []string {
	if !l.hot() {
		phase = "user"
	}
	keys := make([]string, l.keys)
	for i := range keys {
		keys[i] = phase + "-" + strconv.Itoa(i)
	}
	return keys
}

// redisSample is one measurement of one limiter.
type redisSample struct {
	wall             time.Duration
	decided, granted int64
	latency          Latency
	use              redisUse
	cpu              time.Duration // of this process
}

// perSecond is how many decisions were made in a second.
func (m redisSample) perSecond() float64 { return float64(m.decided) / m.wall.Seconds() }

// admitted is how many were granted over how many may have been, since the first request for the keys.
func (m redisSample) admitted(l redisLoad) float64 { return float64(m.granted) / m.allowed(l) }

func (m redisSample) allowed(l redisLoad) float64 { return float64(l.keys) * l.budget.evenly(m.wall) }

// redisAnswers are those of all callers.
type redisAnswers struct {
	lock             sync.Mutex
	all              *histogram
	decided, granted int64
	err              error
}

const (
	// latenciesAtOnce is how many latencies a caller keeps to itself before it adds them to those of all.
	latenciesAtOnce = 256
	// localEvery is of how many decisions the time of one is measured where most are made in memory: reading the clock for each
	// would take a third as long as they do.
	localEvery = 16
)

func (a *redisAnswers) add(latencies []time.Duration, decided, granted int64, err error) {
	a.lock.Lock()
	defer a.lock.Unlock()
	for _, d := range latencies {
		a.all.add(d)
	}
	a.decided += decided
	a.granted += granted
	if a.err == nil {
		a.err = err
	}
}

// ask has one caller ask for keys in turn until it is over, and measures the time of one in so many decisions.
func (a *redisAnswers) ask(decide redisDecide, keys []string, at, every int, over *atomic.Bool) {
	var (
		latencies        = make([]time.Duration, 0, latenciesAtOnce)
		decided, granted int64
		start            time.Duration
		left             = 1 // until the next one that is measured
	)
	for !over.Load() {
		if left--; left == 0 {
			start = time.Since(epoch)
		}
		ok, err := decide(keys[at])
		if err != nil {
			over.Store(true)
			a.add(latencies, decided, granted, err)
			return
		}
		decided++
		if ok {
			granted++
		}
		if at++; at == len(keys) {
			at = 0
		}
		if left > 0 {
			continue
		}
		left = every
		if latencies = append(latencies, time.Since(epoch)-start); len(latencies) == latenciesAtOnce {
			a.add(latencies, decided, granted, nil)
			latencies, decided, granted = latencies[:0], 0, 0
		}
	}
	a.add(latencies, decided, granted, nil)
}

// drive has all callers ask for so long. Every decision that was begun is waited for, and counts.
func (l redisLoad) drive(
	ctx context.Context, r redisLimiter, phase string, d time.Duration, every int, h *histogram,
) (m redisSample, err error) {
	var (
		callers sync.WaitGroup
		over    atomic.Bool
		gate    = make(chan struct{})
		answers = redisAnswers{all: h}
		keys    = l.names(phase)
	)
	for i := range l.callers {
		decide := r.caller()
		callers.Go(func() {
			<-gate
			answers.ask(decide, keys, i*len(keys)/l.callers, every, &over)
		})
	}
	cpu, start := cpuTime(), time.Now()
	close(gate)
	pause(ctx, d)
	over.Store(true)
	callers.Wait()
	m.wall, m.cpu = time.Since(start), cpuTime()-cpu
	m.decided, m.granted = answers.decided, answers.granted
	if answers.err == nil {
		answers.err = ctx.Err()
	}
	return m, answers.err
}

// sample measures one limiter, which is made for it, after a warm-up of a part of the time.
func (l redisLoad) sample(
	ctx context.Context, server *redisServer, s redisSubject, d time.Duration, h *histogram,
) (m redisSample, err error) {
	wrong := func(err error) error { return fmt.Errorf("bench: redis, %s: %s: %w", l.id(), s.By, err) }
	if err = server.forget(ctx); err != nil { //nolint:gocritic // the result of that name is set in a deferred call
		return m, err
	}
	r, err := s.open(ctx, server.address, l)
	if err != nil {
		return m, wrong(err)
	}
	defer func() {
		if e := r.close(); e != nil && err == nil {
			err = wrong(e)
		}
	}()
	every := 1
	if s.local {
		every = localEvery
	}
	h.reset()
	if _, err = l.drive(ctx, r, "warm", d/warmPart, every, h); err != nil {
		return m, wrong(err)
	}
	h.reset()
	runtime.GC()
	before, err := server.use(ctx)
	if err != nil {
		return m, err
	}
	if m, err = l.drive(ctx, r, "hot", d, every, h); err != nil {
		return m, wrong(err)
	}
	after, err := server.use(ctx)
	if err != nil {
		return m, err
	}
	m.use, m.latency = after.since(before), h.latency()
	return m, l.verify(s, m)
}

// warmPart is the part of the time of a measurement for which a limiter is asked before it.
const warmPart = 3

// verify fails if the decisions were not those that the row is about: then it measured something else.
func (l redisLoad) verify(s redisSubject, m redisSample) error {
	var wrong string
	switch {
	case m.decided < int64(l.callers) || m.granted == 0:
		wrong = "some should have been granted"
	case l.all && m.granted != m.decided:
		wrong = "all should have been granted"
	case l.some && m.granted == m.decided && s.kind != redisPeer: // some peers are too slow to come to the limit
		wrong = "some should have been refused (a longer time per measurement may help)"
	case !s.local && m.use.commands < s.commands(m.decided):
		wrong = fmt.Sprintf("Redis ran only %.0f commands for them", m.use.commands)
	default:
		return nil
	}
	return fmt.Errorf("bench: redis, %s: %s granted %d of %d decisions, but %s: the row does not measure what it says",
		l.id(), s.By, m.granted, m.decided, wrong)
}
