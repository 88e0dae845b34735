package weirprom

import (
	"fmt"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Collector is a [prometheus.Collector] of the counts of one limiter, store or engine. Its methods are safe for concurrent use.
// The zero Collector is not usable: call a function such as [NewLimiter].
type Collector struct {
	descriptions []*prometheus.Desc
	collect      func(chan<- prometheus.Metric)
}

var _ prometheus.Collector = (*Collector)(nil)

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descriptions {
		ch <- d
	}
}

// Collect implements [prometheus.Collector]. It reads the counts once, so that they are of one moment where their source can do
// that.
func (c *Collector) Collect(ch chan<- prometheus.Metric) { c.collect(ch) }

// family is one metric of what S counts.
type family[S any] struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
	each       func(s *S, emit emitter)
	// computed tells that the values are differences of counts that were read one after the other. They could go back by what
	// happened in between, which Prometheus takes for a restart, and so are held at their highest.
	computed bool
}

// emitter takes a value, with one value for each label.
type emitter func(value float64, labels ...string)

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

// one is for a metric with one value.
func one[S any, N number](of func(*S) N) func(*S, emitter) {
	return func(s *S, emit emitter) { emit(float64(of(s))) }
}

type number interface {
	~int | ~int64 | ~uint64 | ~float64
}

// newCollector makes one of metrics that all have a label, or none if its name is "".
func newCollector[S any](read func() S, families []family[S], label, value string) *Collector {
	mustRead(read, label, value)
	return newCollectorWith(read, families, constant(label, value), func(*S, chan<- prometheus.Metric) {})
}

// mustRead panics if there is nothing to ask: otherwise the first scrape would.
func mustRead[S any](read func() S, label, value string) {
	if read == nil {
		panic(fmt.Sprintf("weir: weirprom: the function of the %s %.40q is nil: must return its counts", label, value))
	}
}

// newCollectorWith makes one that has more metrics, of which the caller adds the descriptions.
func newCollectorWith[S any](
	read func() S, families []family[S], labels prometheus.Labels, more func(*S, chan<- prometheus.Metric),
) *Collector {
	c := &Collector{}
	highest := make([]highs, len(families))
	for i := range families {
		f := &families[i]
		c.descriptions = append(c.descriptions, prometheus.NewDesc(f.name, f.help, f.labels, labels))
		if f.computed {
			highest[i].seen = make(map[string]float64)
		}
	}
	c.collect = func(ch chan<- prometheus.Metric) {
		s := read()
		more(&s, ch)
		for i := range families {
			f, d := &families[i], c.descriptions[i]
			f.each(&s, func(v float64, labels ...string) {
				if f.computed {
					v = highest[i].hold(v, labels)
				}
				ch <- prometheus.MustNewConstMetric(d, f.kind, v, labels...)
			})
		}
	}
	return c
}

func constant(label, value string) prometheus.Labels {
	if label == "" {
		return nil
	}
	return prometheus.Labels{label: valid(value)}
}

// valid is a text as a label may have it.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// highs are the highest values that were seen.
type highs struct {
	lock sync.Mutex
	seen map[string]float64
}

// hold returns v, or the highest value so far if that is higher.
func (h *highs) hold(v float64, labels []string) float64 {
	h.lock.Lock()
	defer h.lock.Unlock()
	key := strings.Join(labels, "\xff")
	v = max(v, h.seen[key])
	h.seen[key] = v
	return v
}

// truth is 1 or 0.
func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}
