package bench

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// few measures nothing worth knowing of limiters of many keys and of rules, fast.
func few() Settings {
	set := quick
	set.Keys, set.AttackKeys, set.KeyedRounds, set.KeyedIdle = [2]int{3 * batch, 4 * batch}, 5*batch, 1, 200*time.Millisecond
	set.RuleBatches = 2
	return set
}

// TestKeyedSubjectsLimit counts what each limiter of many keys grants to each of two keys: one that did not limit, or that
// mixed them up, would be fast for nothing.
func TestKeyedSubjectsLimit(t *testing.T) {
	const burst, calls = 5, 12
	for _, s := range keyedSubjects() {
		t.Run(s.By, func(t *testing.T) {
			l := s.New(keyedOptions{budget: budget{burst, time.Hour * burst, burst}, keys: 100, bounded: true})
			defer l.end()
			granted := map[string]int{}
			for range calls {
				for _, key := range []string{"192.0.2.1", "192.0.2.2"} {
					if l.allow(key) {
						granted[key]++
					}
					granted[key] += l.ask([]string{key, key})
				}
			}
			want := burst
			if s.NoLimit {
				want = 3 * calls
			}
			for key, n := range granted {
				if n != want {
					t.Errorf("%d of %d calls for %s were granted, want %d", n, 3*calls, key, want)
				}
			}
			if len(granted) != 2 {
				t.Errorf("granted %v", granted)
			}
			if l.takeN != nil && (!l.takeN("192.0.2.3", burst) || l.takeN("192.0.2.3", 1)) {
				t.Error("all permits at once are not all permits")
			}
		})
	}
}

// TestKeyedSubjectsKeepKeysApart asks for many keys that are granted once.
func TestKeyedSubjectsKeepKeysApart(t *testing.T) {
	const n = 3000
	keys := freshKeys(0, n)
	defer keys.free()
	for _, s := range keyedSubjects() {
		l := s.New(keyedOptions{budget: empty, keys: n})
		first, second := l.ask(keys.keys), l.ask(keys.keys)
		l.end()
		if first != n || second != 0 && !s.NoLimit {
			t.Errorf("%s: %d keys were granted their permit, and %d another one; want %d and 0", s.By, first, second, n)
		}
		if l.tracked != nil && l.tracked() != n {
			t.Errorf("%s tracks %d keys, want %d", s.By, l.tracked(), n)
		}
	}
}

func TestBareTableCountsEachKey(t *testing.T) {
	const n = 2000
	keys := freshKeys(0, n)
	defer keys.free()
	table := newBareTable(n)
	table.limiter().ask(keys.keys)
	table.timed().ask(keys.keys)
	for i, key := range keys.keys {
		if c := table.find(key).state.Load(); c < 2 {
			t.Fatalf("key %d was counted %d times", i, c)
		}
	}
	used := 0
	for i := range table.slots {
		if table.slots[i].hash.Load() != 0 {
			used++
		}
	}
	if used != n {
		t.Errorf("%d slots are used by %d keys", used, n)
	}
}

func TestKeysAreDifferent(t *testing.T) {
	const n = 100_000
	seen := make(map[string]bool, n)
	for i := range n {
		key := string(appendKey(nil, i))
		if seen[key] || len(key) > longestKey || strings.Count(key, ".") != 3 {
			t.Fatalf("key %d is %q, seen before: %v", i, key, seen[key])
		}
		seen[key] = true
	}
	a := newAttacker()
	defer a.free()
	for range 10 {
		for _, key := range a.more(batch) {
			if seen[key] {
				t.Fatalf("the attacker makes %q twice", key)
			}
			seen[strings.Clone(key)] = true
		}
	}
}

// TestKeyArrays looks at how often keys come in them.
func TestKeyArrays(t *testing.T) {
	const n = 5000
	for _, l := range keyedLoads(n) {
		times := map[string]int{}
		for _, key := range l.keys.keys {
			times[key]++
		}
		most := 0
		for i := range n {
			most = max(most, times[string(appendKey(nil, i))])
			delete(times, string(appendKey(nil, i)))
		}
		if len(times) > 0 || len(l.keys.keys)%batch != 0 {
			t.Errorf("%s: %d keys are none of those that limiters are filled with", l.name, len(times))
		}
		share := float64(most) / float64(len(l.keys.keys))
		if frequent := l.name == "zipf"; share > 0.05 != frequent {
			t.Errorf("%s: the most frequent key has a share of %.3f", l.name, share)
		}
		l.keys.free()
	}
	filled := 0
	ownKeys(7, 2*batch+1, func(keys []string) {
		for _, key := range keys {
			if key != string(appendKey(nil, 7+filled)) {
				t.Fatalf("key %d is %q", filled, key)
			}
			filled++
		}
	})
	if filled != 2*batch+1 {
		t.Errorf("%d keys, want %d", filled, 2*batch+1)
	}
}

func TestHistogram(t *testing.T) {
	h := newHistogram()
	if h.quantile(1) != 0 {
		t.Error("there is a quantile of nothing")
	}
	for i := range 1000 {
		h.add(time.Duration(i + 1))
	}
	h.add(time.Second)
	h.add(time.Minute)
	for _, c := range []struct {
		q    float64
		want time.Duration
	}{{0, 1}, {0.5, 501}, {0.99, 991}, {0.9985, 1000}, {0.9991, time.Second}, {1, time.Minute}} {
		if got := h.quantile(c.q); got != c.want {
			t.Errorf("the quantile %v is %v, want %v", c.q, got, c.want)
		}
	}
}

// TestKeyedSections measures everything of limiters of many keys with few of them, and shows it.
func TestKeyedSections(t *testing.T) {
	r := Report{Machine: ThisMachine(), Count: 1, Time: "1ms"}
	for _, s := range keyedSections() {
		if err := s.measure(t.Context(), few(), &r); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
	}
	k := r.Keyed
	if len(k.Sizes) != 2 || len(k.Refusals) != 1 || len(k.Rows()) != 20 || len(k.Attacks) != 2 {
		t.Fatalf("got %+v", k)
	}
	for _, row := range k.Rows() {
		peers := len(keyedPeers())
		if strings.Contains(row.Name, "batches") {
			peers = 0
		}
		if len(row.Peers) != peers || (row.NoPeer != "") != (peers == 0) || len(row.Floors) != 2 || !(row.Floors[0].Ratio > 0) {
			t.Errorf("%s: %d peers, floors %+v", row.Name, len(row.Peers), row.Floors)
		}
	}
	for _, p := range append(k.Growth, k.Cleaning...) {
		if p.Calls == 0 || p.Max < p.Median || p.Worst < p.Max || math.IsNaN(p.Kept) {
			t.Errorf("%+v", p)
		}
	}
	for _, a := range k.Attacks {
		if lru := a.By == byThrottledLRU; a.Reset > 0 != lru || a.HonestRefused > 0 || a.Honest == 0 {
			t.Errorf("%s: %+v", a.By, a)
		}
	}
	var text, document strings.Builder
	r.WriteText(&text)
	if err := r.WriteMarkdown(&document); err != nil {
		t.Fatal(err)
	}
	for _, tab := range k.tables() {
		if n := len(tab.Table.rows); n == 0 {
			t.Errorf("table %q is empty", tab.Name)
		}
		for _, line := range tab.Table.rows {
			if len(line) != len(tab.Table.columns) {
				t.Errorf("table %q: a line of %d cells for %d columns", tab.Name, len(line), len(tab.Table.columns))
			}
		}
	}
	for _, p := range KeyedPeers() {
		for where, s := range map[string]string{"the tables": text.String(), "the document": document.String()} {
			if !strings.Contains(s, p.Name) {
				t.Errorf("%s do not show %s", where, p.Name)
			}
		}
	}
	for _, heading := range []string{"## Many keys", "### An attack by new keys", "### Longest calls while keys are cleaned away"} {
		if !strings.Contains(document.String(), heading) {
			t.Errorf("the document has no %q", heading)
		}
	}
}

// TestKeyedGoals judges known numbers.
func TestKeyedGoals(t *testing.T) {
	good := KeyedReport{
		Sizes:    []KeyedSize{{Keys: 1_000_000, Memory: []KeyedMemory{{By: byWeir, Bytes: 47}, {By: byThrottled, Bytes: 80}}}},
		Sights:   []FirstSight{{By: byWeir, Nanos: 150}, {By: byTable, Nanos: 10, Floor: true}},
		Growth:   []KeyedPause{{By: byWeir, Keys: 1000, Latency: Latency{Max: 9e5}}},
		Cleaning: []KeyedPause{{By: byWeir, Keys: 1000, Latency: Latency{Max: 9e5}}},
		Attacks:  []AttackResult{{By: byWeir, Keys: 5000, After: 50, Peak: 60, P99: 2.9}, {By: byThrottledLRU, Reset: 9}},
	}
	for _, g := range good.goals() {
		if !g.Met {
			t.Errorf("%s: %s", g.Name, g.Found)
		}
	}
	if losses := good.losses(); len(losses) != 0 {
		t.Errorf("got %q", losses)
	}
	bad := KeyedReport{
		Sizes: []KeyedSize{{Keys: 1_000_000, Memory: []KeyedMemory{
			{By: byWeir, Bytes: 49, Scanned: 8}, {By: byTable, Bytes: 32, Floor: true}, {By: byHTTPRate, Bytes: 38},
		}}},
		Sights:   []FirstSight{{By: byWeir, Nanos: 201, Allocs: 1}, {By: byThrottled, Nanos: 200}},
		Growth:   []KeyedPause{{By: byWeir, Latency: Latency{Max: 2e6}}, {By: byUlule, Latency: Latency{Max: 1e6}}},
		Cleaning: []KeyedPause{{By: byWeir, Latency: Latency{Max: 2e6}}},
		Attacks:  []AttackResult{{By: byWeir, After: 53, Peak: 106, Reset: 1, HonestRefused: 1, P99: 3.1}},
	}
	for _, g := range bad.goals() {
		if g.Met {
			t.Errorf("%s: %s is met", g.Name, g.Found)
		}
	}
	if n := len(bad.goals()); n != 11 || n != len(good.goals()) {
		t.Errorf("%d goals", n)
	}
	want := []string{
		"1M keys: httprate takes 38.0 bytes a key, weir 49.0",
		"first sight: throttled takes 200 ns a key, weir 201",
		"while keys come, the longest call of ulule takes 1000 µs, that of weir 2000",
	}
	if got := bad.losses(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestCount writes numbers of keys.
func TestCount(t *testing.T) {
	for n, want := range map[int]string{
		10_000_000: "10M", 2_500_000: "2.5M", 1_000_000: "1M", 50_000: "50k", 3072: "3072", 12_300: "12.3k", 7: "7",
	} {
		if got := count(n); got != want {
			t.Errorf("count(%d) is %q, want %q", n, got, want)
		}
	}
}
