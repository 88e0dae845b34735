//go:build !race

package respapi

import (
	"bytes"
	"crypto/sha256"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir/manualclock"
)

// TestPipelinesAreAnsweredAsOneByOne sends the same commands to two servers that have one clock: to one a command at a time, to
// the other in pieces that begin and end anywhere. All replies are the same.
func TestPipelinesAreAnsweredAsOneByOne(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 11))
		clock := manualclock.New(0)
		one, wants := pipelined(t, clock)
		many, gets := pipelined(t, clock)
		if seed%2 > 0 {
			for _, c := range []*conn{one, many} {
				c.s.o.Password, c.s.password = "secret", sha256.Sum256([]byte("secret"))
				c.setStranger(true)
			}
		}
		for range 30 {
			var all []byte
			for range 1 + random.IntN(80) {
				command := randomCommand(random)
				for repeat := random.IntN(4); repeat >= 0; repeat-- { // most commands are the one before with another key
					one.get(t, bytes.Clone(command))
					all = append(all, command...)
					if key := bytes.Index(command, []byte("key:")); key >= 0 {
						command[key+len("key:")] = '0' + byte(random.IntN(6))
					}
				}
			}
			if random.IntN(30) == 0 {
				end := []byte([]string{"QUIT\r\n", "*x\r\n", "POST / HTTP/1.1\r\n"}[random.IntN(3)])
				one.get(t, end)
				all = append(append(all, end...), "PING\r\n"...)
			}
			for most := 1 + random.IntN(len(all)); len(all) > 0; {
				n := min(1+random.IntN(most), len(all))
				piece := bytes.Clone(all[:n])
				many.get(t, piece)
				clear(piece)
				all = all[n:]
			}
			if !bytes.Equal(gets.sent, wants.sent) {
				t.Fatalf("seed %d: the replies are %q, want %q", seed, gets.sent, wants.sent)
			}
			if many.batch != nil || many.ending != one.ending || many.s.answered.Load() != one.s.answered.Load() {
				t.Fatalf("seed %d: %d commands are answered, want %d", seed, many.s.answered.Load(), one.s.answered.Load())
			}
			if got, want := many.s.throttle.keys.Stats(), one.s.throttle.keys.Stats(); got != want {
				t.Fatalf("seed %d: %+v, want %+v", seed, got, want)
			}
			if one.ending {
				break
			}
			gets.sent, wants.sent = gets.sent[:0], wants.sent[:0]
			clock.Advance(time.Duration(random.ExpFloat64() * float64(time.Second)))
		}
	}
}
