package respapi_test

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/front/holds"
	"github.com/weirhq/weir/cmd/weir/internal/front/respapi"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/resp"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/internal/respclient"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// printed is a reply as redis-cli prints it, behind a margin of so many columns that its first line has already.
func printed(r respclient.Reply, margin int) string {
	switch r.Kind {
	case respclient.Int:
		return "(integer) " + r.Value + "\n"
	case respclient.Null:
		return "(nil)\n"
	case respclient.Failure:
		return "(error) " + r.Value + "\n"
	case respclient.Bulk:
		return strconv.Quote(r.Value) + "\n"
	case respclient.Array:
		var b strings.Builder
		for i, e := range r.Elems {
			number := fmt.Sprintf("%*d) ", len(strconv.Itoa(len(r.Elems))), i+1)
			if i > 0 {
				b.WriteString(strings.Repeat(" ", margin))
			}
			b.WriteString(number + printed(e, margin+len(number)))
		}
		return b.String()
	default:
		return r.Value + "\n"
	}
}

var anID = regexp.MustCompile(`\b[0-9A-Z]{26}\b`)

// TestDocumentedReplies has the sessions of docs/resp.md with a server that has the configuration of it.
func TestDocumentedReplies(t *testing.T) {
	page, err := os.ReadFile("../../../../../docs/resp.md")
	if err != nil {
		t.Fatal(err)
	}
	limits := documentedLimits(t, string(page))
	kept := holds.New(holds.Options{})
	defer kept.Close()
	s, err := respapi.New(respapi.Options{Limits: limits, Holds: kept})
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &guarded{t: t, server: s, address: l.Addr().String(), ended: make(chan error, 1)}
	go func() { g.ended <- s.Serve(l) }()
	defer g.shutdown()
	w := g.dial(resp.RESP2)

	ids := map[string]string{} // of this session by those that are documented
	commands := 0
	for _, block := range strings.Split(string(page), "```redis\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for _, step := range strings.Split("\n"+block, "\n> ")[1:] {
			line, want, _ := strings.Cut(step, "\n")
			w.send(anID.ReplaceAllStringFunc(line, func(id string) string { return ids[id] }))
			r, err := w.replies.Read()
			if err != nil {
				t.Fatal(err)
			}
			got := printed(r, 0)
			if documented, answered := anID.FindString(want), anID.FindString(got); documented != "" && ids[documented] == "" {
				ids[documented] = answered
			}
			for documented, answered := range ids {
				got = strings.ReplaceAll(got, answered, documented)
			}
			if strings.TrimSpace(got) != strings.TrimSpace(want) {
				t.Errorf("%s answers\n%swant\n%s", line, got, want)
			}
			commands++
		}
	}
	if commands < 12 {
		t.Errorf("%d commands are documented", commands)
	}
}

// documentedLimits are those of the first configuration on a page that has policies, on a clock that stands still.
func documentedLimits(t *testing.T, page string) *live.Limits {
	t.Helper()
	for _, block := range strings.Split(page, "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if !strings.Contains(block, "policies:") {
			continue
		}
		f, err := config.Parse("weir.yaml", []byte(block), config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		limits, err := live.Fixed(f.Set, policy.EngineOptions{Clock: manualclock.New(1)}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = limits.Engine().Close() })
		return limits
	}
	t.Fatal("the page has no configuration")
	return nil
}
