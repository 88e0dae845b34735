package adminapi

import (
	"cmp"
	"maps"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/internal/cputime"
	"github.com/weirhq/weir/policy"
)

// overview serves GET admin.OverviewPath.
func (h *Handler) overview(_ *call) (any, *answer.Problem) {
	return h.state(), nil
}

// state is what an overview says.
func (h *Handler) state() *operator.Overview {
	status := h.o.Limits.Status()
	fronts := maps.Clone(h.o.Status())
	for _, other := range []string{"store", "cluster"} {
		delete(fronts, other)
	}
	o := &operator.Overview{
		Version: h.o.Version, Started: h.o.Started.UTC(), Now: time.Now().UTC(), Draining: h.draining.Load(),
		Config:   loaded(&status),
		Requests: status.Requests, Refused: status.Report.Refused, Denied: status.Denied,
		Exempt: status.Exempt, Unlimited: status.Unlimited, Canceled: status.Canceled,
		Latency: latencyOf(&status.Latency), Process: process(), Policies: h.policiesOf(&status), Fronts: fronts,
	}
	if h.o.Ready != nil {
		if err := h.o.Ready(); err != nil {
			o.NotReady = err.Error()
		}
	}
	return o
}

func loaded(s *live.Status) operator.Loaded {
	return operator.Loaded{
		File: s.File, Version: s.Version, Loaded: s.Loaded.UTC(), Reloads: s.Reloads, Refused: s.Refused, LastError: s.LastError,
	}
}

func latencyOf(l *policy.Latency) operator.Latency {
	within := func(part float64) float64 { return operator.SecondsOf(l.Quantile(part)) }
	a := operator.Latency{
		Measured: l.Count, P50: within(0.5), P99: within(0.99), P999: within(0.999),
		Buckets: [][2]float64{},
	}
	for _, b := range l.Buckets {
		if b.Count > 0 {
			a.Buckets = append(a.Buckets, [2]float64{operator.SecondsOf(b.UpTo), float64(b.Count)})
		}
	}
	return a
}

// policies serves GET admin.PoliciesPath.
func (h *Handler) policies(_ *call) (any, *answer.Problem) {
	status := h.o.Limits.Status()
	return h.policiesOf(&status), nil
}

// policiesOf are the policies with their counts.
func (h *Handler) policiesOf(s *live.Status) []operator.Policy {
	all := make([]operator.Policy, len(s.Policies))
	of := h.inWords()
	for i := range s.Policies {
		all[i] = of.policies[s.Policies[i].Name] // of another set for a moment
		all[i].PolicyReport = s.Policies[i]
		all[i].Difference = operator.SpellDifference(all[i].Difference)
		if all[i].Limits == nil {
			all[i].Limits = []operator.Limit{}
		}
	}
	return all
}

// rules serves GET admin.RulesPath.
func (h *Handler) rules(_ *call) (any, *answer.Problem) {
	status := h.o.Limits.Status()
	return h.rulesOf(&status), nil
}

func (h *Handler) rulesOf(s *live.Status) []operator.Rule {
	all, of := make([]operator.Rule, 0, len(s.Rules)), h.inWords()
	for i := range s.Rules {
		rule := of.rules[s.Rules[i].Name]
		rule.Name, rule.Matched, rule.Failed = s.Rules[i].Name, s.Rules[i].Matched, s.Rules[i].Failed
		if rule.Limits == nil {
			rule.Limits = []string{}
		}
		all = append(all, rule)
	}
	return all
}

// configuration serves GET admin.ConfigurationPath.
func (h *Handler) configuration(_ *call) (any, *answer.Problem) {
	status := h.o.Limits.Status()
	c := operator.Configuration{
		Loaded: loaded(&status), Text: h.o.Limits.Text(), History: []operator.Reload{}, Rules: h.rulesOf(&status),
	}
	for _, one := range h.o.Limits.History() {
		c.History = append(c.History, operator.Reload{
			Time: one.Time, Cause: one.Cause, Version: one.Version, Changes: one.Changes, Mistakes: one.Mistakes,
		})
	}
	return &c, nil
}

// replicas serves GET admin.ReplicasPath.
func (h *Handler) replicas(_ *call) (any, *answer.Problem) {
	status := h.o.Status()
	return &operator.Replicas{Store: status["store"], Cluster: status["cluster"]}, nil
}

// audit serves GET admin.AuditPath.
func (h *Handler) audit(q *call) (any, *answer.Problem) {
	return h.o.Audit.Last(q.n), nil
}

// inWords is the set in force in words, which do not change as long as it is.
func (h *Handler) inWords() *words {
	set := h.o.Limits.Engine().Set()
	if of := h.words.Load(); of != nil && of.set == set {
		return of
	}
	of := newWords(set, h.o.Limits.Clean)
	h.words.Store(of)
	return of
}

// words are the policies and rules of a set in words, by name.
type words struct {
	set      *policy.Set
	policies map[string]operator.Policy
	rules    map[string]operator.Rule
}

func newWords(set *policy.Set, clean func(string) string) *words {
	of := &words{set, make(map[string]operator.Policy, len(set.Policies)), make(map[string]operator.Rule, len(set.Rules))}
	for i := range set.Policies {
		p := &set.Policies[i]
		a := operator.Policy{
			Limits: limitsInWords(p.Limits, clean), Candidate: limitsInWords(p.Candidate, clean), Parent: p.Parent,
			Fail: p.Fail.String(), Source: p.Source, Lockout: lockoutInWords(p.Lockout),
		}
		if p.Key != nil {
			a.Key = clean(p.Key.String())
		}
		of.policies[p.Name] = a
	}
	for i := range set.Rules {
		r := &set.Rules[i]
		a := operator.Rule{
			Match: clean(cmp.Or(strings.Join(config.Conditions(r, listed), ", "), "all requests")), Exempt: r.Exempt,
			Deny: r.Deny, Mode: r.Mode.String(),
			Final: r.Final, Afterwards: r.Afterwards, Source: r.Source,
			Limits: []string{},
		}
		for j := range r.Limits {
			if name := r.Limits[j].Policy; !slices.Contains(a.Limits, name) {
				a.Limits = append(a.Limits, name)
			}
		}
		of.rules[r.Name] = a
	}
	return of
}

func limitsInWords(all []policy.Limit, clean func(string) string) []operator.Limit {
	if len(all) == 0 {
		return nil
	}
	told := make([]operator.Limit, 0, len(all))
	for i := range all {
		told = append(told, operator.Limit{Name: all[i].Name, Holds: clean(all[i].String())})
	}
	return told
}

// process is what the program uses.
func process() operator.Process {
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(heap)
	return operator.Process{
		Goroutines: runtime.NumGoroutine(), HeapBytes: heap[0].Value.Uint64(), OpenFiles: openFiles(), CPUSeconds: cpuSeconds(),
	}
}

// cpuSeconds is how much time of processors the program has used, -1 if the system does not tell.
func cpuSeconds() float64 {
	used, err := cputime.Used()
	if err != nil {
		return -1
	}
	return used.Seconds()
}

// openFiles is how many files are open, -1 if the system does not tell.
func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(entries) - 1 // the directory itself
}
