package respapi

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/respclient"
	"github.com/weirhq/weir/manualclock"
)

// replies is a transport without a network that keeps what is sent.
type replies struct {
	memory

	sent []byte
}

func (r *replies) send(_ *conn, b []byte) error {
	r.sent = append(r.sent, b...)
	return nil
}

// pipelined is a connection without a network whose CL.THROTTLE has a clock of its own.
func pipelined(t testing.TB, clock weir.Clock) (*conn, *replies) {
	t.Helper()
	c, _ := connection(t, nil)
	throttle, err := throttleAt(0, clock)
	if err != nil {
		t.Fatal(err)
	}
	c.s.throttle = throttle
	c.s.commands, err = newRegister(connectionCommands{}, serverCommands{}, throttle, c.s.policies)
	if err != nil {
		t.Fatal(err)
	}
	r := new(replies)
	c.via = r
	c.begin()
	return c, r
}

// get has the connection answer what has arrived.
func (c *conn) get(t testing.TB, b []byte) {
	for len(b) > 0 && !c.ending {
		n := min(len(b), cap(c.in)-len(c.in))
		c.in = append(c.in, b[:n]...)
		b = b[n:]
		if !c.answer() {
			t.Fatal("the connection is lost")
		}
	}
}

// randomCommand is one of those that a pipeline may have, most of them calls of CL.THROTTLE under a few limits.
func randomCommand(random *rand.Rand) []byte {
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	name := one("cl.throttle", "CL.THROTTLE", "throttle", "RL.Throttle")
	key := "key:" + strconv.Itoa(random.IntN(6))
	limit := strings.Fields(one("15 30 60", "15 30 60", "3 1 1", "0 1 3600", "40 7 13"))
	if random.IntN(4) > 0 {
		return respclient.AppendCommand(nil, append([]string{name, key}, limit...)...)
	}
	if random.IntN(2) > 0 {
		quantity := one("0", "1", "2", "5", "17", "100", "-1", "-100", "x", "9223372036854775807", "-9223372036854775808", "+3")
		return respclient.AppendCommand(nil, append(append([]string{name, key}, limit...), quantity)...)
	}
	switch random.IntN(16) {
	case 0:
		return []byte(one("PING\r\n", "\r\n", "*0\r\n", `cl.throttle "key:\x31" 15 30 60`+"\r\n", "cl.throttle key:2 15 30 60 2\n"))
	case 1:
		return respclient.AppendCommand(nil, "client", "reply", one("on", "off", "skip"))
	case 2, 3:
		return respclient.AppendCommand(nil, "client", "reply", "on")
	case 4:
		return respclient.AppendCommand(nil, "hello", one("2", "3", "4"))
	case 5:
		return respclient.AppendCommand(nil, "reset")
	case 6, 7:
		return respclient.AppendCommand(nil, "auth", one("secret", "secret", "wrong"))
	case 8:
		return respclient.AppendCommand(nil, "gcra", key, limit[0], limit[1], limit[2])
	case 9:
		burst, count, period := one("-1", "", "15", "9999999999999999"), one("0", "x", "1"), one("-1", "0", "999999999999")
		return respclient.AppendCommand(nil, name, key, burst, count, period)
	case 10:
		return respclient.AppendCommand(nil, name, key, limit[0], one("1", limit[1]))
	case 11:
		return respclient.AppendCommand(nil, name, key, limit[0], limit[1], limit[2], "1", "1")
	case 12: // a limit that no plan is for yet
		return respclient.AppendCommand(nil, name, key, strconv.Itoa(random.IntN(1000)), "5", "9")
	case 13:
		return respclient.AppendCommand(nil, name, key+strings.Repeat("x", random.IntN(20_000)), limit[0], limit[1], limit[2])
	case 14:
		return respclient.AppendCommand(nil, "nothing", key)
	default:
		return respclient.AppendCommand(nil, "echo", key)
	}
}

// TestPipelineContention has clients of one server take the permits of two keys while the clock stands still: not one more is
// granted than there are.
func TestPipelineContention(t *testing.T) {
	t.Parallel()
	const capacity, clients = 3000, 4
	var pipeline []byte
	for i := range 100 {
		pipeline = respclient.AppendCommand(pipeline, "cl.throttle", strconv.Itoa(i%2), strconv.Itoa(capacity-1), "1", "100000")
	}
	first, _ := pipelined(t, manualclock.New(0))
	granted := make([]int, clients)
	var wg sync.WaitGroup
	for i := range clients {
		c, r := pipelined(t, nil)
		c.s.commands = first.s.commands
		wg.Go(func() {
			for range 50 {
				c.get(t, pipeline)
			}
			granted[i] = bytes.Count(r.sent, fmt.Appendf(nil, "*5\r\n:0\r\n:%d\r\n", capacity))
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range granted {
		sum += n
	}
	if sum != 2*capacity {
		t.Errorf("%d permits were granted, want %d", sum, 2*capacity)
	}
}

// BenchmarkPipeline is 64 calls of CL.THROTTLE in one read, of keys in no order. All are allowed. Each operation is one call.
func BenchmarkPipeline(b *testing.B) {
	const calls, digits = 64, 8
	var pipeline []byte
	keys := make([]int, calls)
	for i := range keys {
		pipeline = respclient.AppendCommand(pipeline, "CL.THROTTLE", "user:"+strings.Repeat("0", digits), "99999", "100000", "1")
		keys[i] = bytes.LastIndex(pipeline, []byte("user:")) + len("user:")
	}
	for _, among := range []uint64{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("%d keys", among), func(b *testing.B) {
			c, m := connection(b, bytes.Clone(pipeline))
			at := uint64(0)
			send := func(next func() uint64) {
				for _, start := range keys {
					for key, i := next(), start+digits-1; i >= start; i-- {
						m.batch[i] = '0' + byte(key%10)
						key /= 10
					}
				}
				if err := c.via.receive(c); err != nil || !c.answer() {
					b.Fatal(err)
				}
			}
			for range among/calls + 1 {
				send(func() uint64 { at++; return at % among })
			}
			random := rand.New(rand.NewPCG(1, 2))
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i += calls {
				send(func() uint64 { return random.Uint64N(among) })
			}
		})
	}
}
