package bench

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
)

// The targets of limits in Redis.
const (
	// LeasedTarget is how many times as many decisions per second as the best peer leased limits are to make about hot keys.
	LeasedTarget = 50
	// CoherentTarget is how many times as many as any peer coherent limits are to make, of many keys and of a hot one.
	CoherentTarget = 1.2
)

// RedisFigure is what was measured of one limiter: medians of the rounds.
type RedisFigure struct {
	By   string `json:"by"`
	Call string `json:"call"`
	// Kind is weir, peer or floor.
	Kind string `json:"kind"`
	// PerSecond is how many decisions were made in a second, and Spread half of the distance between the quartiles relative to
	// it.
	PerSecond float64 `json:"decisions_per_second"`
	Spread    float64 `json:"spread"`
	P50       float64 `json:"p50_ns"`
	P99       float64 `json:"p99_ns"`
	// Commands is how many commands Redis ran for a decision, those that scripts call included.
	Commands float64 `json:"commands_per_decision"`
	// Server and Client are the CPU time of Redis and of this process for a decision.
	Server float64 `json:"server_cpu_us"`
	Client float64 `json:"client_cpu_us"`
	// Granted is how many decisions granted a permit, and Admitted that over how many may have: of the round in which it was
	// most.
	Granted  int64   `json:"granted"`
	Admitted float64 `json:"granted_of_allowed"`
	// Plain compares with the best peer over a pool of connections, and Pipelined with the best one whose client pipelines;
	// both only of weir.
	Plain     *RedisRatio `json:"plain,omitempty"`
	Pipelined *RedisRatio `json:"pipelined,omitempty"`
}

// RedisRatio is how many times as many decisions per second as the best peer of the same round: the median of the rounds.
type RedisRatio struct {
	Ratio float64 `json:"ratio"`
	// Peer is the one with the most decisions per second.
	Peer string `json:"peer"`
}

// String names the peer too.
func (r *RedisRatio) String() string { return fmt.Sprintf("%.2f x %s", r.Ratio, r.Peer) }

// RedisResult is what was measured of all limiters under one load.
type RedisResult struct {
	Name     string        `json:"name"`
	Callers  int           `json:"callers"`
	Hot      bool          `json:"hot"`
	How      string        `json:"how"`
	Limiters []RedisFigure `json:"limiters"`
}

// RedisReport is what was measured of limits in Redis.
type RedisReport struct {
	// Server is the version of redis-server.
	Server   string          `json:"server,omitempty"`
	Versions []ModuleVersion `json:"versions,omitempty"`
	Rows     []RedisResult   `json:"rows,omitempty"`

	server *redisServer
}

// start starts the server, if it does not run.
func (r *RedisReport) start(ctx context.Context) (err error) {
	if r.server != nil {
		return nil
	}
	if r.server, err = startRedis(ctx); err != nil {
		return err
	}
	r.Server = r.server.version
	if info, ok := debug.ReadBuildInfo(); ok {
		r.Versions = versions(info, slices.Concat(RedisPeers(), []Peer{{Name: "go-redis", Module: goredisModule}, {
			Name: "rueidis", Module: "github.com/redis/rueidis",
		}}))
	}
	return nil
}

// end stops the server.
func (r *RedisReport) end() {
	r.server.stop()
	r.server = nil
}

// redisPrefix begins the names of all sections and targets of limits in Redis.
const redisPrefix = "redis, "

func redisSections() (all []section) {
	for _, l := range redisLoads() {
		all = append(all, section{redisPrefix + l.id(), func(ctx context.Context, set Settings, r *Report) error {
			if err := r.Redis.start(ctx); err != nil {
				return err
			}
			result, err := l.measure(ctx, r.Redis.server, redisSubjects(), set)
			r.Redis.Rows = append(r.Redis.Rows, result)
			return err
		}})
	}
	return all
}

// measure measures all limiters in rounds, each of which begins with another one.
func (l redisLoad) measure(ctx context.Context, server *redisServer, subjects []redisSubject, set Settings) (RedisResult, error) {
	all := make([][]redisSample, len(subjects))
	h := newHistogram()
	for round := range set.RedisCount {
		for turn := range subjects {
			i := (round + turn) % len(subjects)
			if err := server.forget(ctx); err != nil {
				return RedisResult{}, err
			}
			m, err := l.sample(ctx, server, subjects[i], set.Redis, h)
			if err != nil {
				return RedisResult{}, err
			}
			all[i] = append(all[i], m)
		}
	}
	return l.result(subjects, all), nil
}

func (l redisLoad) result(subjects []redisSubject, all [][]redisSample) RedisResult {
	res := RedisResult{Name: l.name, Callers: l.callers, Hot: l.hot(), How: l.how}
	for i, s := range subjects {
		f := l.figure(s, all[i])
		if s.kind == redisOurs {
			f.Plain, f.Pipelined = besideBest(subjects, all, i, false), besideBest(subjects, all, i, true)
		}
		res.Limiters = append(res.Limiters, f)
	}
	return res
}

func (l redisLoad) figure(s redisSubject, all []redisSample) RedisFigure {
	of := func(value func(m redisSample) float64) (values []float64) {
		for _, m := range all {
			values = append(values, value(m))
		}
		return values
	}
	each := func(value func(m redisSample) float64) float64 {
		return median(of(func(m redisSample) float64 { return value(m) / float64(m.decided) }))
	}
	f := RedisFigure{
		By: s.By, Call: s.Call, Kind: string(s.kind),
		PerSecond: median(of(redisSample.perSecond)), Spread: spread(of(redisSample.perSecond)),
		P50:      median(of(func(m redisSample) float64 { return m.latency.Median })),
		P99:      median(of(func(m redisSample) float64 { return m.latency.P99 })),
		Commands: each(func(m redisSample) float64 { return m.use.commands }),
		Server:   each(func(m redisSample) float64 { return m.use.cpu.Seconds() * 1e6 }),
		Client:   each(func(m redisSample) float64 { return m.cpu.Seconds() * 1e6 }),
	}
	for _, m := range all {
		if a := m.admitted(l); a >= f.Admitted {
			f.Granted, f.Admitted = m.granted, a
		}
	}
	return f
}

// besideBest compares a subject with the best peer of each round, of those that pipeline or of the others; nil if there are none.
func besideBest(subjects []redisSubject, all [][]redisSample, ours int, together bool) *RedisRatio {
	var ratios []float64
	best := &RedisRatio{}
	most := 0.0
	for i, s := range subjects {
		if s.kind != redisPeer || s.together != together {
			continue
		}
		var rates []float64
		for _, m := range all[i] {
			rates = append(rates, m.perSecond())
		}
		if m := median(rates); m > most {
			most, best.Peer = m, s.By
		}
		for round, rate := range rates {
			ratio := all[ours][round].perSecond() / rate
			if round == len(ratios) {
				ratios = append(ratios, ratio)
			}
			ratios[round] = min(ratios[round], ratio)
		}
	}
	if len(ratios) == 0 {
		return nil
	}
	best.Ratio = median(ratios)
	return best
}

// goals are all numbers that limits in Redis are to hold.
func (r RedisReport) goals() (all []Goal) {
	for _, row := range r.Rows {
		goal := func(what string, met bool, found string) {
			all = append(all, Goal{fmt.Sprintf("%s%s, callers: %d, %s", redisPrefix, row.Name, row.Callers, what), met, found})
		}
		beside := func(f RedisFigure, target float64) {
			least := fmt.Sprintf("%s >= %g x best peer", f.By, target)
			goal(least, f.Plain.Ratio >= target, f.Plain.String())
			goal(least+", pipelined", f.Pipelined.Ratio >= target, f.Pipelined.String())
		}
		for _, f := range row.Limiters {
			if f.Plain == nil || f.Pipelined == nil {
				continue
			}
			switch {
			case f.By == byCoherent:
				beside(f, CoherentTarget)
			case f.By == byLeased && row.Hot:
				beside(f, LeasedTarget)
			}
			if row.Hot {
				goal(f.By+", granted <= allowed", f.Admitted <= 1, ofAllowed(f.Admitted))
			}
		}
	}
	return all
}
