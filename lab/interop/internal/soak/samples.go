//go:build linux

package soak

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/procfs"
)

// sample is what a process uses at a time.
type sample struct {
	At         time.Duration `json:"at"`
	Memory     float64       `json:"memory_bytes"`
	Goroutines float64       `json:"goroutines"` // -1 if they are not told
	Files      float64       `json:"open_files"`
	CPU        float64       `json:"cpu_seconds"`
}

// samples are those of one process.
type samples struct {
	who  string
	node string
	all  []sample
}

// meter samples what processes use.
type meter struct {
	mu  sync.Mutex
	all []*samples
}

// look takes a sample of a process. It is none if the process has just ended.
func (m *meter) look(who, node string, pid int, now time.Duration, goroutines float64) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return
	}
	stat, err := p.Stat()
	if err != nil || stat.State == "Z" {
		return
	}
	status, err := p.NewStatus()
	if err != nil {
		return
	}
	files, err := p.FileDescriptorsLen()
	if err != nil {
		return
	}
	// Pages of files, such as those of etcd, are not memory of its own.
	one := sample{now, float64(status.RssAnon), goroutines, float64(files), stat.CPUTime()}
	m.mu.Lock()
	defer m.mu.Unlock()
	at := slices.IndexFunc(m.all, func(s *samples) bool { return s.who == who })
	if at < 0 {
		at = len(m.all)
		m.all = append(m.all, &samples{who: who, node: node})
	}
	m.all[at].all = append(m.all[at].all, one)
}

// lookAt takes samples of all nodes and of Redis.
func (m *meter) lookAt(ctx context.Context, f *fleet, c *clocks) {
	for _, n := range f.nodes {
		s := n.use()
		if s == nil {
			continue
		}
		goroutines := -1.0
		if d, ok := s.overview(ctx); ok {
			goroutines = float64(d.Process.Goroutines)
		}
		m.look(s.who, n.setup.name, s.pid, time.Duration(c.now()), goroutines)
	}
	m.look("redis", "redis", f.redis.PID(), time.Duration(c.now()), -1)
}

// Growth is how much of something a process used, and whether it grows.
type Growth struct {
	What  string  `json:"what"`
	First float64 `json:"first"` // the median of the first tenth of the time that counts
	Last  float64 `json:"last"`  // of the last tenth
	Most  float64 `json:"most"`
	// Slope is how much it grew in an hour, and Grown how much in the time that counts, by it.
	Slope float64 `json:"per_hour"`
	Grown float64 `json:"grown"`
	// Tolerated is how much it may grow.
	Tolerated float64 `json:"tolerated"`
	Leaks     bool    `json:"leaks"`
}

// Usage is what a process used in the second half of a run.
type Usage struct {
	Node string        `json:"node"`
	Who  string        `json:"process"`
	From time.Duration `json:"from"`
	To   time.Duration `json:"to"`
	// Judged reports whether it ran long enough to say whether anything grows.
	Judged bool `json:"judged"`
	// Cores is how many the node kept busy on average, over the whole run.
	Cores  float64  `json:"cores"`
	Growth []Growth `json:"growth"`
	// Samples are some of what was measured.
	Samples []sample `json:"samples"`
}

// least is how many samples are needed to say whether something grows, and leastTime over which time. A process is not looked
// at while it is younger than young: it grows until its tables, pools and caches have the size that they need.
const (
	least     = 30
	leastTime = 2 * time.Minute
	young     = 2 * time.Minute
)

// usage returns of each node the longest time in which one process of it ran in the second half of a run.
func (m *meter) usage(half, whole time.Duration) (all []Usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	longest := make(map[string]*samples)
	cpu := make(map[string]float64)
	for _, s := range m.all {
		last := s.all[len(s.all)-1]
		cpu[s.node] += last.CPU
		second := &samples{who: s.who, node: s.node}
		for _, x := range s.all {
			if x.At >= half && (x.At >= s.all[0].At+young || whole < 2*young) {
				second.all = append(second.all, x)
			}
		}
		if b := longest[s.node]; len(second.all) > 0 && (b == nil || len(second.all) > len(b.all)) {
			longest[s.node] = second
		}
	}
	for _, node := range sorted(longest) {
		s := longest[node]
		u := Usage{Node: node, Who: s.who, From: s.all[0].At, To: s.all[len(s.all)-1].At}
		u.Cores = cpu[node] / max(whole.Seconds(), 1)
		u.Judged = len(s.all) >= least && u.To-u.From >= max(leastTime, whole/4)
		u.Samples = thinned(s.all)
		for _, of := range []struct {
			what         string
			value        func(sample) float64
			part, beside float64
		}{
			{"memory_bytes", func(s sample) float64 { return s.Memory }, 0.15, 16 << 20},
			{ofGoroutines, func(s sample) float64 { return s.Goroutines }, 0.15, 25},
			{"open_files", func(s sample) float64 { return s.Files }, 0.15, 12},
		} {
			g := grows(s.all, of.value)
			g.What = of.what
			g.Tolerated = of.beside + of.part*g.First
			g.Leaks = u.Judged && g.Grown > g.Tolerated
			u.Growth = append(u.Growth, g)
		}
		all = append(all, u)
	}
	return all
}

// grows reports whether something grows: by the median of the slopes between all pairs of samples, which single peaks do not
// change.
func grows(all []sample, value func(sample) float64) (g Growth) {
	all = slices.DeleteFunc(slices.Clone(all), func(s sample) bool { return value(s) < 0 })
	if len(all) == 0 {
		return Growth{First: -1, Last: -1, Most: -1}
	}
	tenth := max(len(all)/10, 1)
	g.First, g.Last = median(all[:tenth], value), median(all[len(all)-tenth:], value)
	for _, s := range all {
		g.Most = max(g.Most, value(s))
	}
	step := max(len(all)/300, 1)
	var slopes []float64
	for i := 0; i < len(all); i += step {
		for j := i + step; j < len(all); j += step {
			if hours := (all[j].At - all[i].At).Hours(); hours > 0 {
				slopes = append(slopes, (value(all[j])-value(all[i]))/hours)
			}
		}
	}
	if len(slopes) > 0 {
		slices.Sort(slopes)
		g.Slope = slopes[len(slopes)/2]
		g.Grown = g.Slope * (all[len(all)-1].At - all[0].At).Hours()
	}
	return g
}

// ofGoroutines is what Growth says of goroutines.
const ofGoroutines = "goroutines"

// mostTold is how many samples of a process are in a report.
const mostTold = 120

// thinned leaves out samples evenly, if there are many.
func thinned(all []sample) (some []sample) {
	step := (len(all) + mostTold - 1) / mostTold
	for i := 0; i < len(all); i += step {
		some = append(some, all[i])
	}
	return some
}

func median(some []sample, value func(sample) float64) float64 {
	some = slices.Clone(some)
	slices.SortFunc(some, func(x, y sample) int { return cmp.Compare(value(x), value(y)) })
	return value(some[len(some)/2])
}
