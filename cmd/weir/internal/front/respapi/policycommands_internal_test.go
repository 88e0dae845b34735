package respapi

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/holds"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/resp"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/policy"
)

// plainPolicies returns commands for so many policies.
func plainPolicies(t testing.TB, n int) *policyCommands {
	t.Helper()
	set := &policy.Set{}
	for i := range n {
		set.Policies = append(set.Policies, policy.Policy{
			Name: "policy-" + strconv.Itoa(i), Key: policy.NamedKey(),
			Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerSecond(1000), 1000)}},
		})
	}
	limits, err := live.Fixed(set, policy.EngineOptions{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	kept := holds.New(holds.Options{})
	t.Cleanup(func() {
		kept.Close()
		_ = limits.Engine().Close()
	})
	return newPolicyCommands(Options{Limits: limits, Holds: kept})
}

func words(line string) (args [][]byte) {
	for word := range strings.SplitSeq(line, " ") {
		args = append(args, []byte(word))
	}
	return args
}

// TestPolicyCommandsDoNotAllocate: a decision without waiting.
func TestPolicyCommandsDoNotAllocate(t *testing.T) {
	if race.Enabled {
		return // its instrumentation allocates
	}
	p := plainPolicies(t, 3)
	w := resp.Writer{Proto: resp.RESP3}
	ctx := t.Context()
	for line, call := range map[string]func(ctx context.Context, w *resp.Writer, args [][]byte){
		"weir.take policy-1 some-key":      func(ctx context.Context, w *resp.Writer, args [][]byte) { p.take(ctx, nil, w, args) },
		"weir.take policy-1 some-key 5000": func(ctx context.Context, w *resp.Writer, args [][]byte) { p.take(ctx, nil, w, args) },
		"weir.peek policy-2 some-key 7":    p.peek,
	} {
		args := words(line)
		if n := testing.AllocsPerRun(200, func() {
			w.Reset(w.Bytes())
			call(ctx, &w, args)
		}); n != 0 {
			t.Errorf("%s allocates %v times", line, n)
		}
	}
}

// going is a client that goes away when it is told to.
type going struct{ gone func() }

func (g *going) address() netip.Addr { return netip.Addr{} }

func (g *going) blocks(gone func()) (begin func(), ready func(bool)) {
	g.gone = gone
	return func() {}, func(bool) {}
}

// TestWaitIsNotTheTimeOfTheStore: the time that a client waits for permits is not that of the answer of a store, or a client
// that waits for a short one would find no store, and be let through where that fails open. A client that goes ends both.
func TestWaitIsNotTheTimeOfTheStore(t *testing.T) {
	p, client := plainPolicies(t, 1), new(going)
	stays := p.wait(t.Context(), client, time.Nanosecond, new(policy.Request), new(policy.Verdict),
		func(ctx context.Context, r *policy.Request, _ *policy.Verdict) error {
			<-ctx.Done()
			if ctx.Err() != context.DeadlineExceeded || r.Context.Err() != nil {
				t.Errorf("the waiting: %v, the request: %v", ctx.Err(), r.Context.Err())
			}
			client.gone()
			<-r.Context.Done()
			return r.Context.Err()
		})
	if stays {
		t.Error("the client has gone, and stays")
	}
}

// TestReservationsEndInWords: what a client is told of the end of its reservation.
func TestReservationsEndInWords(t *testing.T) {
	for want, err := range map[string]error{
		"+OK\r\n": nil, "-NOHOLD there is no reservation \"ID\": ": holds.ErrUnknown,
		"-UNAVAILABLE it is not known whether the reservation was settled": holds.ErrUnsettled,
	} {
		var w resp.Writer
		if settled(&w, []byte("ID"), err); !strings.HasPrefix(string(w.Bytes()), want) {
			t.Errorf("%v: %q, want %q", err, w.Bytes(), want)
		}
	}
}

func BenchmarkPolicyCommands(b *testing.B) {
	p := plainPolicies(b, 3)
	w := resp.Writer{}
	ctx := b.Context()
	args := words("weir.take policy-1 some-key")
	b.ReportAllocs()
	for b.Loop() {
		w.Reset(w.Bytes())
		p.take(ctx, nil, &w, args)
	}
}

// TestCommandsAreDocumented: docs/resp.md has the form of each command and each code of an error.
func TestCommandsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../../../docs/resp.md")
	if err != nil {
		t.Fatal(err)
	}
	th, _ := clockedThrottle(t, 0)
	for _, c := range append(th.commands(), plainPolicies(t, 1).commands()...) {
		form := strings.ToUpper(c.name) + " " + c.arguments
		if c.name == "throttle" || c.name == "rl.throttle" {
			form = "`" + strings.ToUpper(c.name) + "`"
		}
		if !strings.Contains(string(page), form) {
			t.Errorf("%s is not documented", form)
		}
	}
	for _, code := range []string{"NOPOLICY", "NOHOLD", "NOREFUND", "TOOMANY", "UNAVAILABLE", "CLOSED"} {
		if !strings.Contains(string(page), code) {
			t.Errorf("%s is not documented", code)
		}
	}
}
