package load

import (
	"runtime"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

// report is what a run has measured, as it is printed.
type report struct {
	Front         string            `json:"front"`
	Request       string            `json:"request"`
	Configuration configurationJSON `json:"configuration"`
	Versions      versionsJSON      `json:"versions"`
	Complete      bool              `json:"complete"`
	Error         string            `json:"error,omitempty"`

	ElapsedSeconds float64 `json:"elapsed_seconds"`
	Requests       int64   `json:"requests"`
	// RatePerSecond is of those without an error.
	RatePerSecond float64 `json:"rate_per_second"`
	// Allowed and Refused are null where a reply is no decision.
	Allowed    *int64      `json:"allowed"`
	Refused    *int64      `json:"refused"`
	Errors     int64       `json:"errors"`
	ErrorKinds []kindJSON  `json:"error_kinds"`
	Reconnects int64       `json:"reconnects"`
	Response   latencyJSON `json:"response"`
	OpenLoop   *openJSON   `json:"open_loop"` // null in a closed loop
	Generator  cpuJSON     `json:"generator"`
	Notes      []string    `json:"notes"`
}

// configurationJSON is what was asked for.
type configurationJSON struct {
	Address        string  `json:"address"`
	TLS            bool    `json:"tls"`
	Loop           string  `json:"loop"`
	Connections    int     `json:"connections"`
	InFlight       int     `json:"in_flight"`
	RatePerSecond  float64 `json:"rate_per_second,omitempty"`
	Arrivals       string  `json:"arrivals,omitempty"`
	Keys           int64   `json:"keys"`
	KeyPrefix      string  `json:"key_prefix"`
	Distribution   string  `json:"distribution"`
	ZipfS          float64 `json:"zipf_s,omitempty"`
	Seed           int64   `json:"seed"`
	Requests       int64   `json:"requests,omitempty"`
	SecondsAsked   float64 `json:"duration_seconds,omitempty"`
	WarmupSeconds  float64 `json:"warmup_seconds"`
	TimeoutSeconds float64 `json:"timeout_seconds"`
}

type versionsJSON struct {
	Weir string `json:"weir"`
	Go   string `json:"go"`
	OS   string `json:"os"`
	Arch string `json:"arch"`
}

type kindJSON struct {
	Kind  string `json:"kind"`
	Count int64  `json:"count"`
	First string `json:"first"`
}

// openJSON is what an open loop has besides.
type openJSON struct {
	Scheduled int64       `json:"scheduled"`
	NotSent   int64       `json:"not_sent"`
	Service   latencyJSON `json:"service"`
	SentLate  latencyJSON `json:"sent_late"`
}

// latencyJSON are latencies in seconds.
type latencyJSON struct {
	Count       int64            `json:"count"`
	Min         float64          `json:"min"`
	Mean        float64          `json:"mean"`
	P50         float64          `json:"p50"`
	P90         float64          `json:"p90"`
	P99         float64          `json:"p99"`
	P999        float64          `json:"p999"`
	Max         float64          `json:"max"`
	Percentiles []percentileJSON `json:"percentiles"`
}

type percentileJSON struct {
	Percent float64 `json:"percent"`
	Value   float64 `json:"value"`
	Count   int64   `json:"count"` // of latencies that are not above the value
}

type cpuJSON struct {
	// CPUSeconds is null where it is not known.
	CPUSeconds *float64 `json:"cpu_seconds"`
	Processors int      `json:"processors"`
}

func newReport(o *options, what string, r *run, result *result) *report {
	t := result.total
	p := &report{
		Front: o.front, Request: what, Configuration: configurationOf(o),
		Versions: versionsJSON{flags.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH},
		Complete: !result.interrupted && result.failure == nil, ElapsedSeconds: result.elapsed.Seconds(), Requests: t.requests(),
		Errors: t.counts[failed], ErrorKinds: []kindJSON{}, Reconnects: result.reconnects, Response: latencies(t.response),
		Notes: []string{}, Generator: cpuJSON{Processors: result.processors},
	}
	switch {
	case result.failure != nil:
		p.Error = o.unreachable(result.failure).Error()
	case result.interrupted:
		p.Error = "interrupted"
	}
	if result.elapsed > 0 {
		p.RatePerSecond = float64(p.Requests-p.Errors) / result.elapsed.Seconds()
	}
	if o.command.text == "" {
		p.Allowed, p.Refused = &t.counts[allowed], &t.counts[refused]
	}
	for _, kind := range t.kinds() {
		p.ErrorKinds = append(p.ErrorKinds, kindJSON{kind, t.failures[kind].count, t.failures[kind].text})
	}
	if result.cpuKnown {
		seconds := result.cpu.Seconds()
		p.Generator.CPUSeconds = &seconds
	}
	if r.schedule != nil {
		p.OpenLoop = &openJSON{
			Scheduled: p.Requests + result.missed, NotSent: result.missed,
			Service: latencies(t.service), SentLate: latencies(t.late),
		}
	}
	p.Notes = append(p.Notes, p.remarks()...)
	return p
}

func configurationOf(o *options) configurationJSON {
	c := configurationJSON{
		Address: o.address, TLS: o.tls.on, Loop: "closed", Connections: o.connections, InFlight: o.inFlight, Keys: o.keys,
		KeyPrefix: o.keyPrefix, Distribution: o.distribution, Seed: o.seed, Requests: o.requests,
		WarmupSeconds: o.warmup.Seconds(), TimeoutSeconds: o.timeout.Seconds(),
	}
	if o.rate > 0 {
		c.Loop, c.RatePerSecond, c.Arrivals = "open", o.rate, o.arrivals
	}
	if o.distribution == zipf {
		c.ZipfS = o.zipfS
	}
	if o.requests == 0 {
		c.SecondsAsked = o.duration.Seconds()
	}
	return c
}

// halves is after how many percentiles the distance to 100 is half as long.
const halves = 2

func latencies(h *hdrhistogram.Histogram) latencyJSON {
	at := func(percent float64) float64 { return time.Duration(h.ValueAtPercentile(percent)).Seconds() }
	l := latencyJSON{Count: h.TotalCount(), Percentiles: []percentileJSON{}}
	if l.Count == 0 {
		return l
	}
	l.Min, l.Mean, l.Max = time.Duration(h.Min()).Seconds(), h.Mean()/float64(time.Second), time.Duration(h.Max()).Seconds()
	l.P50, l.P90, l.P99, l.P999 = at(50), at(90), at(99), at(99.9)
	for _, b := range h.CumulativeDistributionWithTicks(halves) {
		l.Percentiles = append(l.Percentiles, percentileJSON{b.Quantile, time.Duration(b.ValueAt).Seconds(), b.Count})
	}
	return l
}

const (
	// lateP99 is how late a request in a hundred may be sent before the report says so.
	lateP99 = 0.002
	// busy is from which share of all its processors on a generator measures itself.
	busy = 0.9
)

// remarks are what a reader must know to believe the figures, or not to.
func (p *report) remarks() []string {
	var notes []string
	open := p.OpenLoop
	switch {
	case open == nil:
	case open.SentLate.P99 > lateP99:
		notes = append(notes, "THE GENERATOR COULD NOT KEEP UP: "+
			"one request in a hundred was sent "+latencySeconds(open.SentLate.P99)+" after its time, or later, through no fault "+
			"of the server. The latencies contain that. Give the generator more processors, or lower --rate.")
	case open.NotSent > 0 && float64(open.NotSent) > float64(open.Scheduled)/100:
		notes = append(notes, "the server did not keep up: "+share(open.NotSent, open.Scheduled)+
			" of the requests that were due found all places of all connections taken until the end, and are in no latency.")
	}
	if used := p.Generator.CPUSeconds; used != nil && p.ElapsedSeconds > 0 &&
		*used > busy*p.ElapsedSeconds*float64(p.Generator.Processors) {
		notes = append(notes,
			"the generator has used all the processors that it has: this may be its limit, and not that of the server.")
	}
	if p.Errors > 0 {
		notes = append(notes, "errors are in no latency.")
	}
	return notes
}
