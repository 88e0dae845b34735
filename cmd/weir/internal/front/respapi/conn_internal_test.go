package respapi

import (
	"log/slog"
	"net"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/holds"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/resp"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/internal/respclient"
	"github.com/weirhq/weir/policy"
)

// memory is a transport without a network: every batch is the same bytes.
type memory struct {
	batch []byte
	sent  int // bytes of replies
}

func (m *memory) receive(c *conn) error {
	c.rest() // as if the client had been waited for
	c.begin()
	c.in = append(c.in, m.batch...)
	return nil
}

func (*memory) arrived(*conn) (int, error) { return 0, nil }

func (m *memory) send(_ *conn, b []byte) error {
	m.sent += len(b)
	return nil
}

// connection is one without a network.
func connection(t testing.TB, batch []byte) (*conn, *memory) {
	t.Helper()
	set := &policy.Set{Policies: []policy.Policy{{
		Name: "default", Key: policy.NamedKey(), Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerSecond(10), 20)}},
	}}}
	limits, err := live.Fixed(set, policy.EngineOptions{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	kept := holds.New(holds.Options{})
	s, err := New(Options{Limits: limits, Holds: kept})
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	t.Cleanup(func() {
		kept.Close()
		for _, c := range []interface{ Close() error }{limits.Engine(), near, far} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	m := &memory{batch: batch}
	c := &conn{s: s, plain: near, nc: near, via: m, proto: resp.RESP2}
	c.info.Store(&nameless)
	return c, m
}

// batches are what clients send, 16 commands at once.
func batches() map[string][]byte {
	all := make(map[string][]byte)
	for name, commands := range map[string][][]string{
		"PING":        {{"PING"}},
		"CL.THROTTLE": {{"CL.THROTTLE", "user:12345678", "15", "30", "60"}},
		"WEIR.TAKE":   {{"WEIR.TAKE", "default", "user:12345678"}},
		"both":        {{"ping"}, {"cl.throttle", "user:12345678", "15", "30", "60", "2"}},
	} {
		var batch []byte
		for i := range 16 {
			batch = respclient.AppendCommand(batch, commands[i%len(commands)]...)
		}
		all[name] = batch
	}
	return all
}

func TestCommandsAllocateNothing(t *testing.T) {
	for name, batch := range batches() {
		c, m := connection(t, batch)
		if got := testing.AllocsPerRun(200, func() {
			if err := c.via.receive(c); err != nil || !c.answer() {
				t.Fatal(err)
			}
		}); got >= 1 && !race.Enabled { // the detector makes pools forget; without it only a collection does
			t.Errorf("%s: %g allocations for 16 commands", name, got)
		}
		if m.sent < 200*16*len("+PONG\r\n") {
			t.Errorf("%s: only %d bytes of replies", name, m.sent)
		}
		c.rest()
	}
}

func BenchmarkCommand(b *testing.B) {
	for name, batch := range batches() {
		b.Run(name, func(b *testing.B) {
			c, _ := connection(b, batch)
			b.ReportAllocs()
			for i := 0; i < b.N; i += 16 {
				if err := c.via.receive(c); err != nil || !c.answer() {
					b.Fatal(err)
				}
			}
		})
	}
}
