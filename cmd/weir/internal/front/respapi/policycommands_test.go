package respapi_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/holds"
	"github.com/weirhq/weir/cmd/weir/internal/front/respapi"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/resp"
	"github.com/weirhq/weir/internal/respclient"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// guarded is a server with some policies, on a clock that stands still.
type guarded struct {
	t       *testing.T
	server  *respapi.Server
	limits  *live.Limits
	holds   *holds.Holds
	clock   *manualclock.Clock
	store   *store.Memory
	address string
	ended   chan error
}

func perHourPolicy(name string, burst int64) policy.Policy {
	return policy.Policy{
		Name: name, Key: policy.NamedKey(),
		Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.Rate{Permits: 1, Period: time.Hour}, burst)}},
	}
}

func somePolicies() []policy.Policy {
	two := perHourPolicy("two", 3)
	two.Limits = append(two.Limits, policy.Limit{Limit: weir.FixedWindow(weir.PerDay(5))})
	watched := perHourPolicy("watched", 1)
	watched.Mode = policy.ModeShadow
	queue := perHourPolicy("queue", 2)
	queue.QueueLimit, queue.MaxWait = 5, time.Hour
	slots := perHourPolicy("slots", 2)
	slots.Limits[0].Limit = weir.AtOnce(2)
	strict := perHourPolicy("strict", 1)
	strict.Lockout = &policy.Lockout{Refusals: 1, For: 24 * time.Hour, Within: time.Hour}
	child := perHourPolicy("child", 10)
	child.Parent = "all"
	all := perHourPolicy("all", 4)
	all.Key = nil
	ofShared := perHourPolicy("of-shared", 10)
	ofShared.Parent = "shared"
	shared := perHourPolicy("shared", 3)
	shared.Consistency = policy.ConsistencyCoherent
	return []policy.Policy{perHourPolicy("default", 5), two, watched, queue, slots, strict, child, all, shared, ofShared}
}

// guard starts a server. most is how many reservations there may be.
func guard(t *testing.T, most int) *guarded {
	t.Helper()
	g := &guarded{t: t, clock: manualclock.New(1), ended: make(chan error, 1)}
	var err error
	if g.store, err = store.NewMemory(store.MemoryOptions{Clock: g.clock}); err != nil {
		t.Fatal(err)
	}
	set := &policy.Set{Policies: somePolicies()}
	o := policy.EngineOptions{Clock: g.clock, Store: g.store}
	if g.limits, err = live.Fixed(set, o, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	g.holds = holds.New(holds.Options{Most: most})
	if g.server, err = respapi.New(respapi.Options{Limits: g.limits, Holds: g.holds, MaxKeys: 1000}); err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.address = l.Addr().String()
	go func() { g.ended <- g.server.Serve(l) }()
	t.Cleanup(func() {
		g.shutdown()
		g.holds.Close()
		_ = g.limits.Engine().Close()
		_ = g.store.Close()
	})
	return g
}

// shutdown ends the server, unless that was done.
func (g *guarded) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := g.server.Shutdown(ctx); err != nil {
		g.t.Error(err)
	}
	if err := <-g.ended; err != nil {
		g.t.Error(err)
	}
	g.ended <- nil
}

// wire is a connection to it.
type wire struct {
	net.Conn

	t       *testing.T
	replies *respclient.Reader
}

func (g *guarded) dial(proto int) *wire {
	g.t.Helper()
	nc, err := new(net.Dialer).DialContext(g.t.Context(), "tcp", g.address)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		g.t.Fatal(err)
	}
	w := &wire{nc, g.t, respclient.NewReader(nc)}
	if proto == resp.RESP3 {
		w.ask("HELLO 3")
	}
	return w
}

func (w *wire) send(lines ...string) {
	w.t.Helper()
	var b []byte
	for _, line := range lines {
		b = respclient.AppendCommand(b, strings.Split(line, " ")...)
	}
	if _, err := w.Write(b); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) reply() string {
	w.t.Helper()
	r, err := w.replies.Read()
	if err != nil {
		w.t.Fatal(err)
	}
	return text(r)
}

// ask sends a line and returns the reply as text.
func (w *wire) ask(line string) string {
	w.t.Helper()
	w.send(line)
	return w.reply()
}

// text is a reply in a form that is easy to read: errors begin with "-", nothing is "nil", maps are "{key value, ...}".
func text(r respclient.Reply) string {
	switch r.Kind {
	case respclient.Int:
		return r.Value
	case respclient.Bool:
		return strconv.FormatBool(r.Value == "t")
	case respclient.Null:
		return "nil"
	case respclient.Failure:
		return "-" + r.Value
	case respclient.Array, respclient.Set, respclient.Push:
		var all []string
		for _, e := range r.Elems {
			all = append(all, text(e))
		}
		return "[" + strings.Join(all, " ") + "]"
	case respclient.Map:
		var all []string
		for i := 0; i < len(r.Elems); i += 2 {
			all = append(all, text(r.Elems[i])+" "+text(r.Elems[i+1]))
		}
		return "{" + strings.Join(all, ", ") + "}"
	default:
		return r.Value
	}
}

func TestPolicyCommands(t *testing.T) {
	g := guard(t, 0)
	w := g.dial(resp.RESP2)
	for i, c := range []struct {
		line string
		want string // limited, limit, remaining, retry_after_ms, reset_after_ms, reason, policy
	}{
		{"WEIR.TAKE default a", "[0 5 4 -1 3600000 none default]"},
		{"weir.take default a 3", "[0 5 1 -1 14400000 none default]"},
		{"weir.take default a 3", "[1 5 1 7200000 14400000 limited default]"},
		{"weir.take default a 6", "[1 5 1 -1 14400000 never default]"},
		{"weir.take default a 0", "[0 5 1 -1 14400000 none default]"},
		{"weir.peek default a", "[0 5 1 -1 14400000 none default]"},
		{"weir.peek default a 2", "[1 5 1 3600000 14400000 limited default]"},
		{"weir.peek default b 5", "[0 5 5 -1 0 none default]"},
		{"weir.refund default a 2", "[0 5 3 -1 7200000 none default]"},
		{"weir.refund default a 1000000000000000", "[0 5 5 -1 0 none default]"},
		{"weir.refund default unknown 1", "[0 5 5 -1 0 none default]"},
		{"weir.take default a 5", "[0 5 0 -1 18000000 none default]"},
		{"weir.peek default a 0", "[1 5 0 3600000 18000000 limited default]"},
		{"weir.reset default a", "OK"},
		{"weir.peek default a", "[0 5 5 -1 0 none default]"},
		// Several limits: the one that binds is told.
		{"weir.take two a 3", "[0 3 0 -1 10800000 none two/1h]"},
		{"weir.refund two a 3", "[0 3 3 -1 0 none two/1h]"},
		{"weir.take two a 3", "[0 3 0 -1 10800000 none two/1h]"},
		{"weir.reset two a", "OK"},
		{"weir.peek two a 3", "[0 3 3 -1 0 none two/1h]"},
		// A policy that does not enforce its limit has no numbers.
		{"weir.take watched a 100", "[0 -1 -1 -1 0 none watched]"},
		// A lockout.
		{"weir.take strict a", "[0 1 0 -1 3600000 none strict]"},
		{"weir.take strict a", "[1 1 0 86400000 3600000 hard-lockout strict]"},
		{"weir.reset strict a", "OK"},
		{"weir.take strict a", "[1 1 1 86400000 0 hard-lockout strict]"},
		{"weir.unlock strict a", "1"},
		{"weir.unlock strict a", "0"},
		{"weir.unlock default a", "0"},
		{"weir.take strict a", "[0 1 0 -1 3600000 none strict]"},
		// A parent without a key is charged, and gets back, what its children are.
		{"weir.take child a 3", "[0 4 1 -1 10800000 none all]"},
		{"weir.take child b 2", "[1 4 1 3600000 10800000 limited all]"},
		{"weir.refund child a 2", "[0 4 3 -1 3600000 none all]"},
		{"weir.take child b 2", "[0 4 1 -1 10800000 none all]"},
		{"weir.take all ", "[0 4 0 -1 14400000 none all]"}, // it needs no key
		// Permits of concurrency are held by reservations only.
		{"weir.take slots a 2", "[0 2 0 -1 0 none slots]"},
		{"weir.take slots a 2", "[0 2 0 -1 0 none slots]"},
		// A store.
		{"weir.take shared a 2", "[0 3 1 -1 7200000 none shared]"},
		{"weir.reset shared a", "OK"},
		{"weir.take shared a 3", "[0 3 0 -1 10800000 none shared]"},
	} {
		if got := w.ask(c.line); got != c.want {
			t.Errorf("%d: %s answers %s, want %s", i, c.line, got, c.want)
		}
	}
	if err := g.store.Close(); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"weir.take shared a":  "[1 3 0 ",
		"weir.reset shared a": "-UNAVAILABLE ",
	} {
		if got := w.ask(line); !strings.HasPrefix(got, want) {
			t.Errorf("without a store, %s answers %s, want %s", line, got, want)
		}
	}
}

func TestPolicyCommandsInVersion3(t *testing.T) {
	g := guard(t, 0)
	w := g.dial(resp.RESP3)
	for _, c := range []struct{ line, want string }{
		{"weir.take default a 4", "{allowed true, limit 5, remaining 1, retry_after_ms -1, reset_after_ms 14400000, reason none, policy default}"},
		{"weir.take default a 4", "{allowed false, limit 5, remaining 1, retry_after_ms 10800000, reset_after_ms 14400000, reason limited, policy default}"},
		{"weir.take watched a 4", "{allowed true, limit -1, remaining -1, retry_after_ms -1, reset_after_ms 0, reason none, policy watched}"},
		{"weir.reserve default a 4", "{allowed false, limit 5, remaining 1, retry_after_ms 10800000, reset_after_ms 14400000, reason limited, policy default, id nil, expires_in_ms 0}"},
		{"weir.takeall default a 1 two a 4", "{allowed false, binding 1, decisions [" +
			"{allowed true, limit 5, remaining 1, retry_after_ms -1, reset_after_ms 14400000, reason none, policy default} " +
			"{allowed false, limit 3, remaining 3, retry_after_ms -1, reset_after_ms 0, reason never, policy two/1h}]}"},
	} {
		if got := w.ask(c.line); got != c.want {
			t.Errorf("%s answers\n%s, want\n%s", c.line, got, c.want)
		}
	}
	if got := w.ask("weir.reserve default b 2 EXPIRE 5000"); !regexp.MustCompile(`^\{.*, policy default, id [0-9A-Z]{26}, expires_in_ms 5000\}$`).MatchString(got) {
		t.Errorf("a reservation: %s", got)
	}
}

// TestCommandsOfWhatWasSpentBind: each use costs 3 of 5 permits, which is told when it is over. The third look is refused until what is
// owed has come back.
func TestCommandsOfWhatWasSpentBind(t *testing.T) {
	w := guard(t, 0).dial(resp.RESP2)
	for _, step := range [][2]string{
		{"weir.take default ann 3 CHARGE afterwards", "[0 5 2 -1 10800000 none default]"},
		{"weir.take default ann 0", "[0 5 2 -1 10800000 none default]"},
		{"weir.take default ann 3 charge AFTERWARDS", "[1 5 0 7200000 21600000 limited default]"},
		{"weir.take default ann 0", "[1 5 0 7200000 21600000 limited default]"},
		{"weir.take default ann 3 CHARGE before", "[1 5 0 14400000 21600000 limited default]"},
		{"weir.take default ann 0", "[1 5 0 7200000 21600000 limited default]"},
	} {
		if got := w.ask(step[0]); got != step[1] {
			t.Errorf("%s: %s, want %s", step[0], got, step[1])
		}
	}
}

func TestPolicyCommandErrors(t *testing.T) {
	g := guard(t, 0)
	w := g.dial(resp.RESP2)
	const cost = ": must be a whole number from 0 to 1000000000000000"
	for line, want := range map[string]string{
		"weir.take": "ERR wrong number of arguments for 'weir.take' command: must be WEIR.TAKE policy key [cost] [CHARGE before|afterwards] [WAIT milliseconds]",
		"weir.take nobody a": `NOPOLICY there is no policy "nobody": must be one of: ` +
			"default, two, watched, queue, slots, strict, child, all, shared, of-shared",
		"weir.take default a x":                          "ERR cost is x" + cost,
		"weir.take default a -1":                         "ERR cost is -1" + cost,
		"weir.take default a 1000000000000001":           "ERR cost is 1000000000000001" + cost,
		"weir.take default ":                             "ERR key has 0 bytes: must not be empty",
		"weir.take default a 1 NOW 1":                    "ERR syntax error at 'NOW': there can be CHARGE before|afterwards or WAIT milliseconds, each once",
		"weir.take default a 1 WAIT":                     "ERR syntax error at 'WAIT': there can be CHARGE before|afterwards or WAIT milliseconds, each once",
		"weir.take default a WAIT 1 WAIT 1":              "ERR syntax error at 'WAIT': there can be CHARGE before|afterwards or WAIT milliseconds, each once",
		"weir.take default a 1 EXPIRE 1":                 "ERR syntax error at 'EXPIRE': there can be CHARGE before|afterwards or WAIT milliseconds, each once",
		"weir.take default a WAIT x":                     "ERR WAIT is x: must be a whole number of milliseconds from 0 to 86400000",
		"weir.take default a WAIT 86400001":              "ERR WAIT is 86400001: must be a whole number of milliseconds from 0 to 86400000",
		"weir.take default a 0 WAIT 5":                   "ERR WAIT is 5: must be 0 or not there with a cost of 0, which takes nothing",
		"weir.take default a CHARGE after":               "ERR CHARGE is after: must be before or afterwards",
		"weir.take default a 1 CHARGE":                   "ERR syntax error at 'CHARGE': there can be CHARGE before|afterwards or WAIT milliseconds, each once",
		"weir.take default a CHARGE before CHARGE x":     "ERR syntax error at 'CHARGE': there can be CHARGE before|afterwards or WAIT milliseconds, each once",
		"weir.take default a 2 WAIT 5 CHARGE AFTERWARDS": "ERR WAIT is 5: must be 0 or not there with CHARGE afterwards, as what was spent does not wait",
		"weir.reserve default a 1 CHARGE afterwards":     "ERR syntax error at 'CHARGE': there can be EXPIRE milliseconds or WAIT milliseconds, each once",
		"weir.peek default a 1 WAIT 1":                   "ERR syntax error at 'WAIT': there can be nothing after the cost",
		"weir.peek default a WAIT":                       "ERR syntax error at 'WAIT': there can be nothing after the cost",
		"weir.takeall default a 1 two":                   "ERR syntax error: must be WEIR.TAKEALL policy key cost [policy key cost ...]",
		"weir.takeall default a 1 nobody a 1":            `NOPOLICY there is no policy "nobody": must be one of: default, two, watched, queue, slots, strict, child, all, shared, of-shared`,
		"weir.takeall default a wait":                    "ERR cost is wait" + cost,
		"weir.reserve default a":                         "ERR wrong number of arguments for 'weir.reserve' command: must be WEIR.RESERVE policy key cost [EXPIRE milliseconds] [WAIT milliseconds]",
		"weir.reserve default a 0":                       "ERR cost is 0: must be a whole number from 1 to 1000000000000000",
		"weir.reserve default a EXPIRE 1":                "ERR cost is EXPIRE" + cost,
		"weir.reserve default a 1 EXPIRE 0":              "ERR EXPIRE is 0: must be a whole number of milliseconds from 1 to 86400000",
		"weir.reserve default a 1 EXPIRE 1 EXPIRE 1":     "ERR syntax error at 'EXPIRE': there can be EXPIRE milliseconds or WAIT milliseconds, each once",
		"weir.commit x":                                  `NOHOLD there is no reservation "x": it has expired, was settled before, or was never made`,
		"weir.commit x y":                                "ERR actual is y: must be a whole number from 0 to 1000000000000000",
		"weir.commit x -1":                               "ERR actual is -1: must be a whole number from 0 to 1000000000000000",
		"weir.commit x 1 1":                              "ERR syntax error: must be WEIR.COMMIT id [actual]",
		"weir.cancel x":                                  `NOHOLD there is no reservation "x": it has expired, was settled before, or was never made`,
		"weir.cancel x 1":                                "ERR wrong number of arguments for 'weir.cancel' command: must be WEIR.CANCEL id",
		"weir.refund default a 0":                        "ERR n is 0: must be a whole number from 1 to 1000000000000000",
		"weir.refund default a x":                        "ERR n is x: must be a whole number from 1 to 1000000000000000",
		"weir.refund nobody a 1":                         `NOPOLICY there is no policy "nobody": must be one of: default, two, watched, queue, slots, strict, child, all, shared, of-shared`,
		"weir.refund slots a 1":                          `NOREFUND policy "slots" limits concurrency, where permits come back when they are released: use WEIR.RESERVE and WEIR.CANCEL`,
		"weir.refund shared a 1":                         `NOREFUND limits of policy "shared" are kept for several processes, where nothing can be given back but what was reserved: use WEIR.RESERVE and WEIR.CANCEL`,
		"weir.refund of-shared a 1":                      `NOREFUND limits of policy "shared" are kept for several processes, where nothing can be given back but what was reserved: use WEIR.RESERVE and WEIR.CANCEL`,
		"weir.reset default":                             "ERR wrong number of arguments for 'weir.reset' command: must be WEIR.RESET policy key",
		"weir.reset default ":                            "ERR key has 0 bytes: must not be empty",
		"weir.unlock default ":                           "ERR key has 0 bytes: must not be empty",
	} {
		if got := w.ask(line); got != "-"+want {
			t.Errorf("%.60s answers\n%s, want\n-%s", line, got, want)
		}
	}
	if got := w.ask("weir.takeall" + strings.Repeat(" default a 1", 65)); got != "-ERR 65 requests: must be from 1 to 64" {
		t.Error(got)
	}
	if got := w.ask("weir.takeall" + strings.Repeat(" two a 1 child b 1", 32)); !strings.HasPrefix(got, "[1 ") {
		t.Error(got)
	}
	if report := g.limits.Engine().Limiter("default", "").Stats(); report.Keys != 0 {
		t.Errorf("%d keys have a state", report.Keys)
	}
}

// TestPolicyCommandsTakeAll: all or nothing.
func TestPolicyCommandsTakeAll(t *testing.T) {
	g := guard(t, 0)
	w := g.dial(resp.RESP2)
	for _, c := range []struct{ line, want string }{
		{"weir.takeall default a 2 two b 1", "[0 1 [[0 5 3 -1 7200000 none default] [0 3 2 -1 3600000 none two/1h]]]"},
		{"weir.takeall default a 1 two b 3", "[1 1 [[0 5 3 -1 7200000 none default] [1 3 2 3600000 3600000 limited two/1h]]]"},
		{"weir.takeall default a 2 default a 2", "[1 0 [[1 5 3 3600000 7200000 limited default] [1 5 3 3600000 7200000 limited default]]]"},
		{"weir.takeall watched a 9 default a 3", "[0 1 [[0 -1 -1 -1 0 none watched] [0 5 0 -1 18000000 none default]]]"},
		{"weir.takeall two b 1 default a 1", "[1 1 [[0 3 2 -1 3600000 none two/1h] [1 5 0 3600000 18000000 limited default]]]"},
		{"weir.takeall default a 0 two b 0", "[1 0 [[1 5 0 3600000 18000000 limited default] [0 3 2 -1 3600000 none two/1h]]]"},
		{"weir.takeall default c 0", "[0 0 [[0 5 5 -1 0 none default]]]"},
		// A store that was not asked: what remains there is not known.
		{"weir.takeall default a 6 shared a 1", "[1 0 [[1 5 0 -1 18000000 never default] [0 3 -1 -1 0 none shared]]]"},
		{"weir.takeall shared a 1 default d 1", "[0 0 [[0 3 2 -1 3600000 none shared] [0 5 4 -1 3600000 none default]]]"},
		{"weir.takeall default d 1 shared a 3", "[1 1 [[0 5 4 -1 3600000 none default] [1 3 2 3600000 3600000 limited shared]]]"},
	} {
		if got := w.ask(c.line); got != c.want {
			t.Errorf("%s answers %s, want %s", c.line, got, c.want)
		}
	}
}

var reserved = regexp.MustCompile(`^\[0 .* ([0-9A-Z]{26}) (\d+)\]$`)

// reserve makes a reservation and returns its id.
func (w *wire) reserve(line string) string {
	w.t.Helper()
	reply := w.ask(line)
	found := reserved.FindStringSubmatch(reply)
	if found == nil {
		w.t.Fatalf("%s answers %s", line, reply)
	}
	return found[1]
}

func TestPolicyCommandsReserve(t *testing.T) {
	g := guard(t, 3)
	w := g.dial(resp.RESP2)
	left := func(want string) {
		t.Helper()
		if got := w.ask("weir.peek default a"); !strings.HasPrefix(got, want) {
			t.Errorf("a look answers %s, want %s", got, want)
		}
	}
	ok := func(line string) {
		t.Helper()
		if got := w.ask(line); got != "OK" {
			t.Errorf("%s answers %s", line, got)
		}
	}
	id := w.reserve("weir.reserve default a 4")
	left("[0 5 1 ")
	ok("weir.commit " + id + " 1")
	left("[0 5 4 ")
	for _, line := range []string{"weir.commit " + id, "weir.cancel " + id} {
		if got := w.ask(line); !strings.HasPrefix(got, "-NOHOLD there is no reservation") {
			t.Errorf("%s answers %s", line, got)
		}
	}
	ok("weir.commit " + w.reserve("weir.reserve default a 1"))
	left("[0 5 3 ")
	ok("weir.commit " + w.reserve("weir.reserve default a 1") + " 3") // more than was reserved
	left("[1 5 0 ")
	ok("weir.cancel " + w.reserve("weir.reserve default b 2"))
	// Permits of concurrency stay out until then.
	first, second := w.reserve("weir.reserve slots a 1"), w.reserve("weir.reserve slots a 1")
	if got := w.ask("weir.reserve slots a 1"); got != "[1 2 0 0 0 limited slots nil 0]" {
		t.Error(got)
	}
	third := w.reserve("weir.reserve default c 1 expire 86400000")
	if got := w.ask("weir.reserve default d 1"); got != "-TOOMANY too many reservations are open" {
		t.Error(got)
	}
	if got := w.ask("weir.peek default d 5"); got != "[0 5 5 -1 0 none default]" {
		t.Errorf("what was not kept was not given back: %s", got)
	}
	ok("weir.commit " + first + " 0")
	ok("weir.cancel " + second)
	ok("weir.cancel " + third)
	if got := w.ask("weir.take slots a 2"); !strings.HasPrefix(got, "[0 ") {
		t.Error(got)
	}
	// One that is forgotten ends by itself.
	w.reserve("weir.reserve default e 5 expire 1")
	for deadline := time.Now().Add(2 * time.Minute); ; {
		if got := w.ask("weir.take default e 5"); strings.HasPrefix(got, "[0 ") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a reservation does not expire")
		}
	}
	if got := w.ask("weir.reserve default f 6"); got != "[1 5 5 -1 0 never default nil 0]" {
		t.Error(got)
	}
}

// waiters waits until so many callers stand in the queue.
func (g *guarded) waiters(want int) {
	g.t.Helper()
	queue := g.limits.Engine().Limiter("queue", "")
	for deadline := time.Now().Add(2 * time.Minute); queue.Stats().Waiters != want; {
		if time.Now().After(deadline) {
			g.t.Fatalf("%d callers wait, want %d", queue.Stats().Waiters, want)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestPolicyCommandsWait: a client that is ready to wait gets its permits when they come, in the order of the commands, or is told
// why not. Replies to commands before are sent before it waits.
func TestPolicyCommandsWait(t *testing.T) {
	g := guard(t, 0)
	w := g.dial(resp.RESP2)
	w.send("PING", "weir.take queue a 2 WAIT 60000", "weir.take queue a wait 3600000", "weir.reserve queue a 1 WAIT 3600000", "PING")
	if got := w.reply() + w.reply(); got != "PONG[0 2 0 -1 7200000 none queue]" {
		t.Errorf("before it waits: %s", got)
	}
	g.waiters(1)
	g.clock.Advance(time.Hour)
	if got := w.reply(); got != "[0 2 0 -1 7200000 none queue]" {
		t.Errorf("after an hour: %s", got)
	}
	g.waiters(1)
	g.clock.Advance(time.Hour)
	if got := w.reply(); !reserved.MatchString(got) {
		t.Errorf("after two hours: %s", got)
	}
	if got := w.reply(); got != "PONG" {
		t.Errorf("the last command answers %s", got)
	}
	for line, want := range map[string]string{
		"weir.take queue a 1 WAIT 1":       "[1 2 0 3600000 7200000 deadline queue]",
		"weir.take queue a 3 WAIT 60000":   "[1 2 0 -1 7200000 never queue]",
		"weir.take default a 6 WAIT 60000": "[1 5 5 -1 0 never default]",
		"weir.take queue a 1 WAIT 0":       "[1 2 0 3600000 7200000 limited queue]",
		"weir.reserve queue a 1 WAIT 1":    "[1 2 0 3600000 7200000 deadline queue nil 0]",
		"weir.take two none 3 WAIT 1000":   "[0 3 0 -1 10800000 none two/1h]",
	} {
		if got := w.ask(line); got != want {
			t.Errorf("%s answers %s, want %s", line, got, want)
		}
	}
	if got := w.ask("weir.take two none 1 WAIT 60000"); got != "[1 3 0 3600000 10800000 limited two/1h]" {
		t.Errorf("a policy without a queue answers %s", got)
	}
}

// TestPolicyCommandsWaitUntilTheClientGoes: its place in the queue is free again, and it takes no permit.
func TestPolicyCommandsWaitUntilTheClientGoes(t *testing.T) {
	g := guard(t, 0)
	w := g.dial(resp.RESP2)
	w.ask("weir.take queue a 2")
	gone := func(nc net.Conn, lines ...string) {
		t.Helper()
		client := &wire{nc, t, respclient.NewReader(nc)}
		client.send(lines...)
		g.waiters(1)
		if err := nc.Close(); err != nil {
			t.Fatal(err)
		}
		g.waiters(0)
	}
	const take, reserve = "weir.take queue a 1 WAIT 86400000", "weir.reserve queue a 1 WAIT 86400000"
	gone(g.dial(resp.RESP2), take)
	gone(g.dial(resp.RESP2), reserve)
	if runtime.GOOS == "linux" { // others do not tell what comes behind something that was not read
		gone(g.dial(resp.RESP2), take, "PING", reserve)
		gone(g.dialTLS(), reserve)
	}
	g.clock.Advance(time.Hour)
	if got := w.ask("weir.peek queue a"); got != "[0 2 1 -1 3600000 none queue]" {
		t.Errorf("afterwards: %s", got)
	}
}

// dialTLS connects to another server over TLS, which has the same limits.
func (g *guarded) dialTLS() net.Conn {
	g.t.Helper()
	certified := httptest.NewTLSServer(nil)
	certified.Close()
	s, err := respapi.New(respapi.Options{Limits: g.limits, Holds: g.holds, TLS: &tls.Config{
		Certificates: certified.TLS.Certificates, MinVersion: tls.VersionTLS13,
	}})
	if err != nil {
		g.t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(g.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		g.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	g.t.Cleanup(func() {
		if ended := errors.Join(s.Shutdown(context.Background()), <-ended); ended != nil {
			g.t.Error(ended)
		}
	})
	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())
	d := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS13}}
	nc, err := d.DialContext(g.t.Context(), "tcp", l.Addr().String())
	if err != nil {
		g.t.Fatal(err)
	}
	return nc
}

// TestPolicyCommandsWaitUntilTheServerEnds: a waiting command is refused, and those behind it are answered.
func TestPolicyCommandsWaitUntilTheServerEnds(t *testing.T) {
	g := guard(t, 0)
	waiting, busy := g.dial(resp.RESP2), g.dial(resp.RESP3)
	waiting.ask("weir.take queue a 2")
	waiting.send("weir.take queue a 1 WAIT 86400000")
	busy.send("weir.take queue a 1 WAIT 86400000", "weir.take queue a 1 WAIT 86400000", "weir.take default a 1")
	g.waiters(2)
	g.shutdown()
	if got := waiting.reply(); !strings.HasPrefix(got, "[1 2 0 0 7200000 closed queue]") {
		t.Errorf("a client that waits is told %s", got)
	}
	for range 2 {
		if got := busy.reply(); !strings.Contains(got, "allowed false") || !strings.Contains(got, "reason closed") {
			t.Errorf("a client that waits is told %s", got)
		}
	}
	if got := busy.reply(); !strings.Contains(got, "allowed true") {
		t.Errorf("the command behind it is answered %s", got)
	}
	if _, err := waiting.replies.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("the connection ends with %v", err)
	}
}

// TestPolicyCommandsContention: clients on connections of their own get no more than there is, and all of it.
func TestPolicyCommandsContention(t *testing.T) {
	g := guard(t, 0)
	var granted atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		w := g.dial(resp.RESP2)
		wg.Go(func() {
			for key := range 50 {
				line := fmt.Sprintf("weir.take default %d", key)
				w.send(line, line)
				for range 2 {
					r, err := w.replies.Read()
					if err != nil {
						t.Error(err)
						return
					}
					if r.Elems[0].Value == "0" {
						granted.Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := granted.Load(); n != 50*5 {
		t.Errorf("%d permits were granted, want 250", n)
	}
}
