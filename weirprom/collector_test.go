package weirprom_test

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/dispatch"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/guard"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/overload"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
	"github.com/weirhq/weir/tiers"
	"github.com/weirhq/weir/weirprom"
)

// values are those of a registry: NAME{LABELS} with a number, of a histogram its count and sum.
func values(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := f.GetName() + "{" + strings.Join(labels, ",") + "}"
			switch {
			case m.GetCounter() != nil:
				all[name] = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				all[name] = m.GetGauge().GetValue()
			case m.GetHistogram() != nil:
				all[name+" count"], all[name+" sum"] = float64(m.GetHistogram().GetSampleCount()), m.GetHistogram().GetSampleSum()
			default:
				t.Errorf("%s is of another kind", name)
			}
		}
	}
	return all
}

func pedantic(t *testing.T, collectors ...prometheus.Collector) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	for _, c := range collectors {
		if err := r.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func compare(t *testing.T, g prometheus.Gatherer, want map[string]float64) {
	t.Helper()
	got := values(t, g)
	for name, value := range want {
		if v, ok := got[name]; !ok || v != value {
			t.Errorf("%s is %v (%t), not %v", name, v, ok, value)
		}
	}
	if len(got) != len(want) {
		for name, value := range got {
			if _, ok := want[name]; !ok {
				t.Errorf("%s is %v, and unexpected", name, value)
			}
		}
	}
}

// filled is a number for every field, so that none is forgotten.
var report = policy.Report{
	Version: 3, Loaded: time.Unix(1000, 0), LastAttempt: time.Unix(2000, 500_000_000), LastError: "no",
	Requests: 100, Refused: 20, Denied: 4, Exempt: 7, Unlimited: 5, Canceled: 3,
	Latency: policy.Latency{Every: 64, Count: 6, Sum: 3 * time.Second, Buckets: []policy.LatencyBucket{
		{UpTo: 64, Count: 1}, {UpTo: 128, Count: 2}, {UpTo: math.MaxInt64, Count: 3},
	}},
	Policies: []policy.PolicyReport{{
		Name: "p", Mode: policy.ModeShadow, Consistency: policy.ConsistencyLeased, Allowed: 11, Refused: 12, LockedOut: 13, Failed: 14,
		Unavailable: 15, Expired: 16, Unsettled: 17, Keys: 18, MaxKeys: 19, Queued: 20, Waiters: 31, Locked: 21, Overridden: 22, Untracked: 23, Full: 24,
		Forgiven: 25, Difference: &policy.Difference{Requests: 26, NewlyRefused: 27, NewlyAdmitted: 28},
	}},
	Rules: []policy.RuleReport{{Name: "r", Matched: 29, Failed: 30}},
}

func TestEngine(t *testing.T) {
	const info = "weir_policy_info{consistency=leased,durability=memory,mode=shadow,policy=p}"
	compare(t, pedantic(t, weirprom.NewEngine(func() policy.Report { return report })), map[string]float64{
		"weir_requests_total{result=allowed}":                              65,
		"weir_requests_total{result=refused}":                              16,
		"weir_requests_total{result=denied}":                               4,
		"weir_requests_total{result=exempt}":                               7,
		"weir_requests_total{result=unlimited}":                            5,
		"weir_requests_total{result=canceled}":                             3,
		"weir_decision_duration_seconds{} count":                           6,
		"weir_decision_duration_seconds{} sum":                             3,
		"weir_policies{}":                                                  1,
		"weir_rules{}":                                                     1,
		"weir_config_version{}":                                            3,
		"weir_config_loaded_timestamp_seconds{}":                           1000,
		"weir_config_last_attempt_timestamp_seconds{}":                     2000.5,
		"weir_config_last_attempt_successful{}":                            0,
		info:                                                               1,
		"weir_policy_requests_total{policy=p,result=allowed}":              11,
		"weir_policy_requests_total{policy=p,result=refused}":              12,
		"weir_policy_locked_out_total{policy=p}":                           13,
		"weir_policy_failed_total{policy=p}":                               14,
		"weir_policy_unavailable_total{policy=p}":                          15,
		"weir_policy_expired_total{policy=p}":                              16,
		"weir_policy_unsettled_total{policy=p}":                            17,
		"weir_policy_keys{policy=p}":                                       18,
		"weir_policy_max_keys{policy=p}":                                   19,
		"weir_policy_queued_permits{policy=p}":                             20,
		"weir_policy_waiters{policy=p}":                                    31,
		"weir_policy_locked_keys{policy=p}":                                21,
		"weir_policy_overridden_keys{policy=p}":                            22,
		"weir_policy_untracked_total{policy=p}":                            23,
		"weir_policy_table_full_total{policy=p}":                           24,
		"weir_policy_forgiven_permits_total{policy=p}":                     25,
		"weir_policy_compared_total{policy=p}":                             26,
		"weir_policy_differences_total{difference=newly_refused,policy=p}": 27,
		"weir_policy_differences_total{difference=newly_allowed,policy=p}": 28,
		"weir_rule_matched_total{rule=r}":                                  29,
		"weir_rule_failed_total{rule=r}":                                   30,
	})
}

// The buckets of a histogram count all that took less, and the last one has no end.
func TestBuckets(t *testing.T) {
	const want = `
# HELP weir_decision_duration_seconds How long decisions take, with queues and stores, of a sample.
# TYPE weir_decision_duration_seconds histogram
weir_decision_duration_seconds_bucket{le="6.4e-08"} 1
weir_decision_duration_seconds_bucket{le="1.28e-07"} 3
weir_decision_duration_seconds_bucket{le="+Inf"} 6
weir_decision_duration_seconds_sum 3
weir_decision_duration_seconds_count 6
`
	c := weirprom.NewEngine(func() policy.Report { return report })
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), "weir_decision_duration_seconds"); err != nil {
		t.Error(err)
	}
	none := weirprom.NewEngine(func() policy.Report { return policy.Report{} })
	if got := values(t, pedantic(t, none)); got["weir_decision_duration_seconds{} count"] != 0 || got["weir_config_loaded_timestamp_seconds{}"] != 0 {
		t.Errorf("%v", got)
	}
}

// all are collectors of each kind, with the counts given.
func all() []prometheus.Collector {
	fleet := store.FleetStats{
		Replicas: 3, Grace: true, Unsettled: 5, UnsettledDropped: 6,
		Breaker:  store.BreakerStats{State: store.BreakerOpen, Since: time.Unix(3000, 0), Opened: 7, Asked: 30, Failed: 8, FastFailed: 9},
		Fallback: store.FallbackStats{Closed: 10, Open: 11, LocalAllowed: 12, LocalRefused: 13, Keys: 14, Owed: 15},
		Leased:   store.LeasedStats{Keys: 16, Held: 17, Lends: 18, Lent: 19, Returned: 20, Lost: 21, Full: 22},
	}
	node := durable.NodeStats{Owner: "a:1", Epoch: 4, Terms: 2, WithoutOwner: 1500 * time.Millisecond, Owned: durable.OwnerStats{
		Keys: 5, WaitingPermits: 6, WaitingRequests: 7, PermitsAhead: 8, Allowed: 9, GrantedPermits: 10, Writes: 11, Records: 12, Rewound: 13, FailedWrites: 13,
		Refused: durable.RefusedStats{Refused: 14, Never: 15, QueueFull: 16, Expired: 17, Canceled: 18, Stopping: 19, Unavailable: 20},
	}}
	shedder := overload.ShedderStats{
		Pressure: 0.5, Blind: true, Priorities: []overload.PriorityStats{{Priority: overload.PriorityCritical, Allowed: 1, Shed: 2, Share: 0.25}},
		Readings: []overload.PressureReading{{Source: "cpu", Pressure: 0.75, Failures: 3}, {Source: "cpu", Pressure: 1}, {Source: "\xff", Err: errors.New("no")}},
	}
	return []prometheus.Collector{
		weirprom.NewLimiter("one", func() weir.Stats {
			return weir.Stats{Limit: 1, Remaining: 2, Queued: 3, Waiters: 4, Allowed: 5, Refused: 6, Forgiven: 7}
		}),
		weirprom.NewLimiter("two", func() weir.Stats { return weir.Stats{} }),
		weirprom.NewKeyed("keyed", func() weir.Stats {
			return weir.Stats{
				Keys: 1, MaxKeys: 2, Allowed: 3, Refused: 4, Untracked: 5, Forgiven: 6, Queued: 7, Waiters: 8, Overridden: 9,
			}
		}),
		weirprom.NewGuard("guard", func() guard.Stats {
			return guard.Stats{
				TrackedEndpoints: 1, MaxTrackedEndpoints: 2, Allowed: 3, SoftThrottled: 4, LockedOut: 5, TrackingCapped: 6, Lockouts: 7,
				Cleanups: 8, Stale: 9, Evicted: 10,
			}
		}),
		weirprom.NewShedder("shedder", func() overload.ShedderStats { return shedder }),
		weirprom.NewFleet("redis", func() store.FleetStats { return fleet }),
		weirprom.NewNode("etcd", func() durable.NodeStats { return node }),
		weirprom.NewGate("gate", func() httplimit.GateStats {
			return httplimit.GateStats{Allowed: 1, Exempt: 2, Refused: 3, Aborted: 4, Failed: 5}
		}),
		weirprom.NewTiers("tiers", func() tiers.Report { return tiers.Report{Active: 1, MaxPolicies: 2, Checks: 3} }),
		weirprom.NewDispatcher("messages", func() dispatch.Stats {
			return dispatch.Stats{
				Notices: 1, Silent: 2, Unknown: dispatch.OpStats{Passed: 3},
				Ops: []dispatch.OpStats{{Op: 9, Passed: 4, Soft: 5, Hard: 6}},
			}
		}),
	}
}

func TestLimitersAndStores(t *testing.T) {
	compare(t, pedantic(t, all()...), map[string]float64{
		"weir_limiter_requests_total{limiter=one,result=allowed}":                       5,
		"weir_limiter_requests_total{limiter=one,result=refused}":                       6,
		"weir_limiter_requests_total{limiter=two,result=allowed}":                       0,
		"weir_limiter_requests_total{limiter=two,result=refused}":                       0,
		"weir_limiter_available_permits{limiter=one}":                                   2,
		"weir_limiter_available_permits{limiter=two}":                                   0,
		"weir_limiter_adaptive_limit_permits{limiter=one}":                              1,
		"weir_limiter_queued_permits{limiter=one}":                                      3,
		"weir_limiter_queued_permits{limiter=two}":                                      0,
		"weir_limiter_waiters{limiter=one}":                                             4,
		"weir_limiter_waiters{limiter=two}":                                             0,
		"weir_limiter_forgiven_permits_total{limiter=one}":                              7,
		"weir_limiter_forgiven_permits_total{limiter=two}":                              0,
		"weir_keyed_requests_total{limiter=keyed,result=allowed}":                       3,
		"weir_keyed_requests_total{limiter=keyed,result=refused}":                       4,
		"weir_keyed_keys{limiter=keyed}":                                                1,
		"weir_keyed_max_keys{limiter=keyed}":                                            2,
		"weir_keyed_untracked_total{limiter=keyed}":                                     5,
		"weir_keyed_forgiven_permits_total{limiter=keyed}":                              6,
		"weir_keyed_queued_permits{limiter=keyed}":                                      7,
		"weir_keyed_waiters{limiter=keyed}":                                             8,
		"weir_keyed_overridden_keys{limiter=keyed}":                                     9,
		"weir_guard_requests_total{guard=guard,result=allowed}":                         3,
		"weir_guard_requests_total{guard=guard,result=soft_throttled}":                  4,
		"weir_guard_requests_total{guard=guard,result=locked_out}":                      5,
		"weir_guard_requests_total{guard=guard,result=tracking_capped}":                 6,
		"weir_guard_lockouts_total{guard=guard}":                                        7,
		"weir_guard_tracked_endpoints{guard=guard}":                                     1,
		"weir_guard_max_tracked_endpoints{guard=guard}":                                 2,
		"weir_guard_cleanups_total{guard=guard}":                                        8,
		"weir_guard_forgotten_endpoints_total{cause=stale,guard=guard}":                 9,
		"weir_guard_forgotten_endpoints_total{cause=evicted,guard=guard}":               10,
		"weir_shedder_pressure_ratio{shedder=shedder}":                                  0.5,
		"weir_shedder_blind{shedder=shedder}":                                           1,
		"weir_shedder_requests_total{priority=critical,result=allowed,shedder=shedder}": 1,
		"weir_shedder_requests_total{priority=critical,result=shed,shedder=shedder}":    2,
		"weir_shedder_shed_ratio{priority=critical,shedder=shedder}":                    0.25,
		"weir_shedder_source_pressure_ratio{shedder=shedder,source=cpu}":                0.75,
		"weir_shedder_source_pressure_ratio{shedder=shedder,source=cpu#2}":              1,
		"weir_shedder_source_pressure_ratio{shedder=shedder,source=\uFFFD}":             0,
		"weir_shedder_source_failures_total{shedder=shedder,source=cpu}":                3,
		"weir_shedder_source_failures_total{shedder=shedder,source=cpu#2}":              0,
		"weir_shedder_source_failures_total{shedder=shedder,source=\uFFFD}":             0,
		"weir_store_available{store=redis}":                                             0,
		"weir_store_available_changed_timestamp_seconds{store=redis}":                   3000,
		"weir_store_outages_total{store=redis}":                                         7,
		"weir_store_calls_total{result=ok,store=redis}":                                 22,
		"weir_store_calls_total{result=failed,store=redis}":                             8,
		"weir_store_calls_total{result=fast_failed,store=redis}":                        9,
		"weir_store_fallback_decisions_total{result=closed,store=redis}":                10,
		"weir_store_fallback_decisions_total{result=open,store=redis}":                  11,
		"weir_store_fallback_decisions_total{result=local_allowed,store=redis}":         12,
		"weir_store_fallback_decisions_total{result=local_refused,store=redis}":         13,
		"weir_store_fallback_keys{store=redis}":                                         14,
		"weir_store_fallback_owed_keys{store=redis}":                                    15,
		"weir_store_grace{store=redis}":                                                 1,
		"weir_store_replicas{store=redis}":                                              3,
		"weir_store_leased_keys{store=redis}":                                           16,
		"weir_store_leased_held_permits{store=redis}":                                   17,
		"weir_store_leased_blocks_total{store=redis}":                                   18,
		"weir_store_leased_permits_total{result=lent,store=redis}":                      19,
		"weir_store_leased_permits_total{result=returned,store=redis}":                  20,
		"weir_store_leased_permits_total{result=lost,store=redis}":                      21,
		"weir_store_leased_full_total{store=redis}":                                     22,
		"weir_store_unsettled_reservations{store=redis}":                                5,
		"weir_store_unsettled_dropped_total{store=redis}":                               6,
		"weir_cluster_owns{cluster=etcd}":                                               0,
		"weir_cluster_owner_known{cluster=etcd}":                                        1,
		"weir_cluster_epoch{cluster=etcd}":                                              4,
		"weir_cluster_terms_total{cluster=etcd}":                                        2,
		"weir_cluster_without_owner_seconds_total{cluster=etcd}":                        1.5,
		"weir_cluster_keys{cluster=etcd}":                                               5,
		"weir_cluster_waiting_permits{cluster=etcd}":                                    6,
		"weir_cluster_waiting_requests{cluster=etcd}":                                   7,
		"weir_cluster_permits_ahead{cluster=etcd}":                                      8,
		"weir_cluster_requests_total{cluster=etcd,result=allowed}":                      9,
		"weir_cluster_requests_total{cluster=etcd,result=refused}":                      14,
		"weir_cluster_requests_total{cluster=etcd,result=never}":                        15,
		"weir_cluster_requests_total{cluster=etcd,result=queue_full}":                   16,
		"weir_cluster_requests_total{cluster=etcd,result=expired}":                      17,
		"weir_cluster_requests_total{cluster=etcd,result=canceled}":                     18,
		"weir_cluster_requests_total{cluster=etcd,result=stopping}":                     19,
		"weir_cluster_requests_total{cluster=etcd,result=unavailable}":                  20,
		"weir_cluster_granted_permits_total{cluster=etcd}":                              10,
		"weir_cluster_writes_total{cluster=etcd,result=ok}":                             11,
		"weir_cluster_writes_total{cluster=etcd,result=failed}":                         13,
		"weir_cluster_written_records_total{cluster=etcd}":                              12,
		"weir_cluster_rewound_records_total{cluster=etcd}":                              13,
		"weir_http_requests_total{gate=gate,result=allowed}":                            1,
		"weir_http_requests_total{gate=gate,result=exempt}":                             2,
		"weir_http_requests_total{gate=gate,result=refused}":                            3,
		"weir_http_requests_total{gate=gate,result=aborted}":                            4,
		"weir_http_requests_total{gate=gate,result=failed}":                             5,
		"weir_tiers_limiters{tiers=tiers}":                                              1,
		"weir_tiers_max_limiters{tiers=tiers}":                                          2,
		"weir_tiers_checks_total{tiers=tiers}":                                          3,
		"weir_dispatcher_messages_total{dispatcher=messages,op=9,result=allowed}":       4,
		"weir_dispatcher_messages_total{dispatcher=messages,op=9,result=soft}":          5,
		"weir_dispatcher_messages_total{dispatcher=messages,op=9,result=hard}":          6,
		"weir_dispatcher_messages_total{dispatcher=messages,op=unknown,result=allowed}": 3,
		"weir_dispatcher_messages_total{dispatcher=messages,op=unknown,result=soft}":    0,
		"weir_dispatcher_messages_total{dispatcher=messages,op=unknown,result=hard}":    0,
		"weir_dispatcher_refusals_total{dispatcher=messages,result=told}":               1,
		"weir_dispatcher_refusals_total{dispatcher=messages,result=silent}":             2,
	})
}

// All metrics follow the conventions of Prometheus, and none has a label that could have a key.
func TestConventions(t *testing.T) {
	g := pedantic(t, append(all(), weirprom.NewEngine(func() policy.Report { return report }))...)
	problems, err := testutil.GatherAndLint(g)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`^weir_[a-z_]+$`)
	may := []string{
		"policy", "rule", "result", "mode", "consistency", "durability", "difference", "limiter", "guard", "cause", "shedder", "priority",
		"source", "store", "cluster", "gate", "tiers", "dispatcher", "op",
	}
	for _, f := range families {
		if !name.MatchString(f.GetName()) || !strings.HasSuffix(f.GetHelp(), ".") || len(f.GetHelp()) < 12 {
			t.Errorf("%s: %s", f.GetName(), f.GetHelp())
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if !slices.Contains(may, l.GetName()) {
					t.Errorf("%s has a label %s", f.GetName(), l.GetName())
				}
			}
		}
	}
}

// Policies, rules and opcodes beyond the first 1000 are summed up, and so is a policy that has the name of the sum.
func TestNamesAreBounded(t *testing.T) {
	many := policy.Report{Policies: []policy.PolicyReport{{Name: weirprom.Other, Allowed: 100, Difference: &policy.Difference{Requests: 1}}}}
	var ops []dispatch.OpStats
	for i := range weirprom.MaxNames + 50 {
		name := fmt.Sprint("policy ", i)
		many.Policies = append(many.Policies, policy.PolicyReport{Name: name, Allowed: 2, Keys: 3, Difference: &policy.Difference{NewlyRefused: 4}})
		many.Rules = append(many.Rules, policy.RuleReport{Name: name, Matched: 5})
		ops = append(ops, dispatch.OpStats{Op: uint64(i), Passed: 6})
	}
	g := pedantic(t, weirprom.NewEngine(func() policy.Report { return many }),
		weirprom.NewDispatcher("d", func() dispatch.Stats { return dispatch.Stats{Ops: ops} }))
	got := values(t, g)
	for name, want := range map[string]float64{
		"weir_policies{}": weirprom.MaxNames + 51,
		"weir_policy_requests_total{policy=_other,result=allowed}":              200,
		"weir_policy_keys{policy=_other}":                                       150,
		"weir_policy_compared_total{policy=_other}":                             1,
		"weir_policy_differences_total{difference=newly_refused,policy=_other}": 200,
		"weir_rule_matched_total{rule=_other}":                                  250,
		"weir_dispatcher_messages_total{dispatcher=d,op=_other,result=allowed}": 300,
		"weir_policy_requests_total{policy=policy 999,result=allowed}":          2,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, not %v", name, got[name], want)
		}
	}
	for name := range got {
		if strings.Contains(name, "policy 1000") {
			t.Errorf("%s is there", name)
		}
	}
}

// TestOthersOnlyGrow: a reload that makes the last policy, rule or opcode the first one takes nothing from the others.
func TestOthersOnlyGrow(t *testing.T) {
	var r policy.Report
	var d dispatch.Stats
	for i := range weirprom.MaxNames + 2 {
		name := fmt.Sprint(i)
		r.Policies = append(r.Policies, policy.PolicyReport{Name: name, Allowed: 100})
		r.Rules = append(r.Rules, policy.RuleReport{Name: name, Matched: 100})
		d.Ops = append(d.Ops, dispatch.OpStats{Op: uint64(i), Passed: 100})
	}
	g := pedantic(t, weirprom.NewEngine(func() policy.Report { return r }),
		weirprom.NewDispatcher("d", func() dispatch.Stats { return d }))
	want := func(value float64) {
		t.Helper()
		got := values(t, g)
		for _, name := range []string{
			"weir_policy_requests_total{policy=_other,result=allowed}", "weir_rule_matched_total{rule=_other}",
			"weir_dispatcher_messages_total{dispatcher=d,op=_other,result=allowed}",
		} {
			if got[name] != value {
				t.Errorf("%s is %v, not %v", name, got[name], value)
			}
		}
	}
	want(200)
	last := len(r.Policies) - 1
	slices.Reverse(r.Policies)
	slices.Reverse(r.Rules)
	slices.Reverse(d.Ops)
	want(200)
	r.Policies[last].Allowed++
	r.Rules[last].Matched++
	d.Ops[last].Passed++
	want(201)
	r.Policies, r.Rules, d.Ops = r.Policies[1:], r.Rules[1:], d.Ops[1:]
	want(201)
}

// A counter that is a difference of others never goes back, whatever was counted while they were read.
func TestCountersOnlyGrowContention(t *testing.T) {
	var requests, refused atomic.Uint64
	c := weirprom.NewEngine(func() policy.Report {
		r := requests.Load()
		return policy.Report{Requests: r, Refused: refused.Load()} // some were refused in between
	})
	g := pedantic(t, c)
	var working sync.WaitGroup
	end := make(chan struct{})
	for range 2 {
		working.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
					requests.Add(1)
					refused.Add(1)
				}
			}
		})
	}
	requests.Add(1000) // that were granted
	last := map[string]float64{}
	for range 50 {
		now := values(t, g)
		for name, was := range last {
			if strings.Contains(name, "_total") && now[name] < was {
				t.Errorf("%s went from %v to %v", name, was, now[name])
			}
		}
		if v := now["weir_requests_total{result=allowed}"]; v > 1000+2 { // each of both has counted one that it has not refused yet
			t.Fatalf("%v requests were granted", v)
		}
		last = now
	}
	close(end)
	working.Wait()
}

// The counts are those of real limiters, under their real names.
func TestRealLimiters(t *testing.T) {
	bucket, err := weir.New(weir.TokenBucket(weir.PerHour(1), 2), weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	keyed, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerHour(1), 1), weir.KeyedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := policy.NewEngine(&policy.Set{
		Policies: []policy.Policy{{Name: "p", Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(1), 1)}}}},
		Rules:    []policy.Rule{{Name: "r", Limits: []policy.Use{{Policy: "p"}}}},
	}, policy.EngineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		bucket.Allow()
		keyed.Allow("secret@example.com")
		var v policy.Verdict
		engine.Take(&policy.Request{}, &v)
		v.Release()
	}
	g := pedantic(t, weirprom.NewLimiter("bucket", bucket.Stats), weirprom.NewKeyed("keyed", keyed.Stats), weirprom.NewEngine(engine.Report))
	got := values(t, g)
	for name, want := range map[string]float64{
		"weir_limiter_requests_total{limiter=bucket,result=allowed}": 2,
		"weir_limiter_requests_total{limiter=bucket,result=refused}": 1,
		"weir_keyed_requests_total{limiter=keyed,result=allowed}":    1,
		"weir_keyed_requests_total{limiter=keyed,result=refused}":    2,
		"weir_keyed_keys{limiter=keyed}":                             1,
		"weir_requests_total{result=allowed}":                        1,
		"weir_requests_total{result=refused}":                        2,
		"weir_policy_requests_total{policy=p,result=refused}":        2,
		"weir_rule_matched_total{rule=r}":                            3,
		"weir_config_last_attempt_successful{}":                      1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, not %v", name, got[name], want)
		}
	}
	for name := range got {
		if strings.Contains(name, "secret") {
			t.Errorf("%s has a key", name)
		}
	}
}

// TestOwnerKnown: a node that reaches no owner does not know one, although it has heard of one.
func TestOwnerKnown(t *testing.T) {
	for want, all := range map[float64][]durable.NodeStats{
		0: {{}, {OwnerUnreached: time.Second}, {Owner: "a:1", OwnerUnreached: 1}},
		1: {{Owner: "a:1"}, {Owner: "a:1", Owns: true}, {Owns: true}},
	} {
		for _, s := range all {
			got := values(t, pedantic(t, weirprom.NewNode("etcd", func() durable.NodeStats { return s })))
			if known, ok := got["weir_cluster_owner_known{cluster=etcd}"]; !ok || known != want {
				t.Errorf("%+v: %v, want %v", s, known, want)
			}
		}
	}
}
