package replay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/offline/accesslog"
)

// limited returns a replay through one limit.
func limited(t *testing.T, l *flags.Limit) *comparison {
	t.Helper()
	one, err := ofLimit(l, true)
	if err != nil {
		t.Fatal(err)
	}
	return newComparison(one)
}

// reportOf is the report once all that was read has been decided.
func reportOf[R report](t testing.TB, c *comparison, top int) R {
	t.Helper()
	if err := c.finish(); err != nil {
		t.Fatal(err)
	}
	r, ok := c.report(top).(R)
	if !ok {
		t.Fatalf("a report of another kind than %T", r)
	}
	return r
}

// TestKeyTableIsBounded sends more keys than there is room for, a few of which are refused often.
func TestKeyTableIsBounded(t *testing.T) {
	const room = 100
	byPath, err := flags.ParseKey("path")
	if err != nil {
		t.Fatal(err)
	}
	c := limited(t, &flags.Limit{Rate: weir.PerSecond(1), Burst: 2, By: byPath, MaxKeys: room})
	const seconds = 1000
	for second := range int64(seconds) {
		for i := range 20 {
			path := fmt.Sprintf("/busy%d", i%3)
			if i >= 15 { // a new key each second, three of whose five requests are refused
				path = fmt.Sprintf("/%d", second)
			}
			c.read(&accesslog.Record{Time: second * int64(time.Second), Path: []byte(path)})
		}
	}
	r := reportOf[*limitReport](t, c, 3)
	if len(c.keys.keys) > room {
		t.Errorf("%d keys of at most %d", len(c.keys.keys), room)
	}
	if r.KeysExact || r.Keys != room || r.Requests != 20*seconds {
		t.Errorf("%d keys, exact %t, %d requests", r.Keys, r.KeysExact, r.Requests)
	}
	var top []string
	for _, k := range r.Top {
		top = append(top, k.Key)
	}
	slices.Sort(top)
	if fmt.Sprint(top) != "[/busy0 /busy1 /busy2]" {
		t.Errorf("top %q", top)
	}
}

func TestDropHalfKeepsTheMostRefused(t *testing.T) {
	table := newLimitKeys(10, weir.PerSecond(1))
	for i := range 10 {
		table.of([]byte(fmt.Sprint(i)), true).refused = int64(i % 5)
	}
	if table.of([]byte("admitted"), false) != nil {
		t.Error("a key that is not refused makes room for itself")
	}
	table.of([]byte("new"), true)
	for key, kept := range map[string]bool{"4": true, "9": true, "3": true, "8": true, "2": true, "7": false, "0": false, "new": true} {
		if got := table.keys[key] != nil; got != kept {
			t.Errorf("key %s is kept: %t, want %t", key, got, kept)
		}
	}
}

// TestTimeline compares timelines with plain histograms.
func TestTimeline(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		at := r.Int64N(int64(40000 * day))
		scale := []time.Duration{time.Microsecond, time.Millisecond, time.Second, time.Minute, day, 100 * day}[r.IntN(6)]
		var line history
		type request struct {
			at      int64
			refused bool
		}
		var requests []request
		for range 1 + r.IntN(500) {
			at += r.Int64N(int64(scale))
			requests = append(requests, request{at, r.IntN(3) == 0})
			line.count(0, line.at(at), requests[len(requests)-1].refused)
		}
		course := line.fit(1, 64)
		steps, start, width := course.series[0], course.start, course.width
		if len(steps) > 64 || len(line.series[0]) > mostSteps {
			t.Fatalf("seed %d: %d steps of %v", seed, len(steps), width)
		}
		if start%int64(width) != 0 {
			t.Errorf("seed %d: starts at %d, which is no multiple of %v", seed, start, width)
		}
		want := make([]step, len(steps))
		for _, q := range requests {
			i := (q.at - start) / int64(width)
			if i < 0 || i >= int64(len(want)) {
				t.Fatalf("seed %d: a request in step %d of %d", seed, i, len(want))
			}
			want[i].requests++
			if q.refused {
				want[i].refused++
			}
		}
		if !slices.Equal(steps, want) {
			t.Errorf("seed %d: steps of %v\n%v\nwant\n%v", seed, width, steps, want)
		}
		if want[0].requests == 0 || want[len(want)-1].requests == 0 {
			t.Errorf("seed %d: empty steps at an end", seed)
		}
	}
}

// TestWidths: steps can be merged only if each width is a multiple of the one before.
func TestWidths(t *testing.T) {
	for i := 1; i < len(widths); i++ {
		if widths[i]%widths[i-1] != 0 || widths[i] <= widths[i-1] {
			t.Errorf("%v is no multiple of %v", widths[i], widths[i-1])
		}
	}
	if !slices.IsSorted(readable) {
		t.Error("readable is not sorted")
	}
	for _, w := range widths {
		if !slices.Contains(readable, w) {
			t.Errorf("%v is not readable", w)
		}
	}
}

// TestExtremeTimes: a log may claim any time from 1970 to 2261.
func TestExtremeTimes(t *testing.T) {
	c := limited(t, &flags.Limit{Rate: weir.PerSecond(1), Burst: 1, MaxKeys: 10})
	c.sequence.size = 1 // so that the last comes too late to be put in order
	latest := time.Date(2261, 12, 31, 23, 59, 59, 0, time.UTC).UnixNano()
	for _, at := range []int64{0, 0, int64(100 * 365 * day), latest, latest, 0} {
		c.read(&accesslog.Record{Time: at})
	}
	r := reportOf[*limitReport](t, c, 3)
	if r.Requests != 6 || r.Refused != 3 || r.Reordered != 1 || r.Late != 1 {
		t.Errorf("%+v", r)
	}
	if steps := len(r.Timeline.Requests); steps > 64 || steps < 2 {
		t.Errorf("%d steps of %v s", steps, r.Timeline.Step)
	}
}

func TestSpark(t *testing.T) {
	for want, counts := range map[string][]int64{" ▁▄█▅": {0, 1, 4, 8, 5}, "  ": {0, 0}, "▁█": {1, 1 << 60}} {
		if line := spark(counts, slices.Max(counts)); line != want {
			t.Errorf("%q, want %q", line, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for s, want := range map[string]string{
		"plain/é🐟": "plain/é🐟", "a\x1b[0m\n": `a\x1b[0m\n`, "\xff\xfe": `\xff\xfe`, "\u202ex": `\u202ex`, "\ufffd": "\ufffd", "\u00a0": `\u00a0`,
	} {
		if got := printable(s); got != want {
			t.Errorf("%q: %s, want %s", s, got, want)
		}
	}
}

func TestNumbersForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Second: "1s", 1500 * time.Millisecond: "1.5s", 90 * time.Second: "1m30s", 2 * time.Hour: "2h", 5 * day: "5.0 days", 0: "0s",
	} {
		if got := span(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
