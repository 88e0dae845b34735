//go:build !race

package config_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/policy"
)

// writer writes random configurations, most of which have no mistake or few.
type writer struct {
	*rand.Rand
	strings.Builder
}

func (w *writer) pick(of ...string) string { return of[w.IntN(len(of))] }

func (w *writer) sometimes(n int) bool { return w.IntN(n) == 0 }

// limit writes an item of limits.
func (w *writer) limit() string {
	name := ""
	if w.sometimes(8) {
		name = "name: " + w.pick("a", "b", "c", "d", "1s", "1m", "1h", "a/b") + ", "
	}
	rate := "rate: " + w.pick("1/s", "100/s", "5/min", "0.5/s", "1000/24h", "1000000000/s", "1/87840h", "1/1ns", "1000000000000000/87840h", "3/7s")
	switch w.IntN(7) {
	case 0:
		return "{" + name + "algorithm: fixed-window, " + rate + "}"
	case 1:
		return "{" + name + "algorithm: sliding-window, " + rate + w.pick("", ", segments: 1", ", segments: 10", ", segments: 64") + "}"
	case 2:
		return "{" + name + "algorithm: sliding-counter, " + rate + "}"
	case 3:
		return "{" + name + "algorithm: concurrency, permits: " + w.pick("1", "10", "1000000000000000") + "}"
	case 4:
		unit := w.pick("minute", "hour", "day", "week", "month", "quarter", "year")
		return "{" + name + "algorithm: calendar-window, permits: 5, every: " + unit + w.pick("", ", zone: Asia/Kathmandu", ", zone: UTC") +
			w.pick("", "", "", "", "", ", day: 31", ", weekday: sunday", ", month: may", ", hour: 23", ", minute: 59") + "}"
	}
	return "{" + name + rate + w.pick("", ", burst: 1", ", burst: 1000", ", burst: 1000000000000000") + "}"
}

func (w *writer) limits(n int) string {
	if n == 1 && w.sometimes(2) {
		return "limit: " + w.pick("1/s", "5/min", "3/7s") + w.pick("", ", burst: 7")
	}
	items := make([]string, n)
	for i := range items {
		items[i] = w.limit()
	}
	return "limits: [" + strings.Join(items, ", ") + "]"
}

func (w *writer) file() string {
	w.Reset()
	w.WriteString("version: 1\npolicies:\n")
	names := []string{"p", "q", "r"}
	for i, name := range names {
		n := 1 + w.IntN(3)
		var more []string
		for _, option := range []string{
			"key: " + w.pick("client.ip", "path.id", "'request.method.lowerAscii()'", "[client.ip, request.host]"),
			"cost: " + w.pick("0", "5", "request.cost"), "mode: " + w.pick("enforce", "shadow", "off"),
			"candidate: {" + w.limits(1+w.IntN(2)) + "}", "tiers: {by: request.method, GET: {" + w.limits(n) + "}}",
			"keys: {x: {" + w.limits(n) + "}}", "parent: " + w.pick(names[(i+1)%3], "q", "p"),
			"queue: {limit: " + w.pick("0", "5", "1000000000000000") + w.pick("", ", max_wait: 1h", ", order: newest-first") + "}",
			"max_keys: " + w.pick("1", "100", "2147483648"), "when_full: admit", "fail: open", "priority: background",
			"lockout: {refusals: 65535, within: 24h, for: 3660d}", "consistency: " + w.pick("local", "coherent, hold: 24h", "leased", "optimistic, hold: 1ms"),
			"durability: " + w.pick("memory", "cluster", "cluster", "cluster, hold: 24h"), "preset: metered-api",
		} {
			if w.sometimes(12) {
				more = append(more, ", "+option)
			}
		}
		fmt.Fprintf(w, "  %s: {%s%s}\n", name, w.limits(n), strings.Join(more, ""))
	}
	w.WriteString("rules:\n")
	for i := range w.IntN(4) {
		var match []string
		for _, condition := range []string{
			"method: " + w.pick("GET", "[GET, POST]", "M-SEARCH"), "host: " + w.pick("a", "'*.b'", "'::1'", "'[::1]'", "a_b.", "A.example", "'*'", "a:1"),
			"path: " + w.pick("/", "/a/", "'/{x}'", "'/{x...}'", "'/a/{$}'", "'/{x}/{x}'", "/a//b", "/%41", "/%2F", "'/a b'", "/../a"),
			"header: {" + w.pick("X-A: b", "X-A: 'b*'", "X-A: '*'", "X-A: ''", "X-A: ", "X-A: ' x'", "X A: b") + "}",
			"client: " + w.pick("10.0.0.0/8", "'::1'", "'::ffff:10.0.0.0/104'", "'::ffff:10.1.2.3'", "0.0.0.0/0", "'::/0'", "10.0.0.1/8"),
			"route: " + w.pick("r", "''", "'GET /'"), "protocol: " + w.pick("http", "''", "grpc"),
		} {
			if w.sometimes(7) {
				match = append(match, condition)
			}
		}
		does := w.pick("limits: p", "limits: [p, {policy: q, key: client.net, cost: 3}]", "exempt: true", "deny: true", "deny: true, mode: shadow", "final: true, limits: r", "when: 'true'")
		fmt.Fprintf(w, "  - {name: %s, match: {%s}, %s}\n", w.pick("a", "b", "c", "d", fmt.Sprint("n", i)), strings.Join(match, ", "), does)
	}
	return w.String()
}

// TestTheEngineTakesWhatTheDecoderAccepts makes engines of random configurations.
func TestTheEngineTakesWhatTheDecoderAccepts(t *testing.T) {
	w := &writer{Rand: rand.New(rand.NewPCG(7, 8))}
	accepted, refused := 0, 0
	for range 800 {
		text := w.file()
		f, err := config.Parse("f.yaml", []byte(text), config.Options{HasStore: true, HasCluster: true})
		if err == nil {
			accepted++
			usable(t, f)
			if t.Failed() {
				t.Fatal(text)
			}
			continue
		}
		refused++
		var errs *yamlread.Errors
		if !errors.As(err, &errs) {
			t.Fatal(err)
		}
		for _, m := range errs.Mistakes {
			if strings.Contains(m.Message, "the engine refuses") || m.Line == 1 {
				t.Fatalf("only the engine has found it: %v in\n%s", m, text)
			}
		}
	}
	if accepted < 80 || refused < 80 {
		t.Errorf("%d accepted, %d refused", accepted, refused)
	}
}

func TestLimitsHaveTheNamesOfTheEngine(t *testing.T) {
	const text = `version: 1
policies:
  p:
    limits:
      - {rate: 1/s}
      - {algorithm: fixed-window, rate: 1/1000ms}
      - {algorithm: sliding-counter, rate: 5/90s}
      - {rate: 1000/24h}
      - {rate: 1/1500us}
      - {algorithm: concurrency, permits: 3}
      - {algorithm: calendar-window, permits: 3, every: quarter}
      - {name: 1s, rate: 1/s}
`
	f, err := config.Parse("f.yaml", []byte(text), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := policy.NewEngine(f.Set, policy.EngineOptions{Alone: true})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	var b strings.Builder
	f.Explain(&b)
	for _, name := range []string{"1s", "1s-2", "1s-3", "90s", "24h", "1500us", "concurrency", "quarter"} {
		if engine.Limiter("p", name) == nil {
			t.Errorf("the engine has no limit %s", name)
		}
		if !strings.Contains(b.String(), "  limit "+name+" ") {
			t.Errorf("limit %s is not explained:\n%s", name, b.String())
		}
	}
}
