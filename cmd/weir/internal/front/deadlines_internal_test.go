package front

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestDeadlinesAreThoseOfTheConnection plays random histories of deadlines, calls and answers of the other end, in virtual time, on
// a connection whose deadlines are noted and on one whose deadlines are set: each call ends at the same time, with the same.
func TestDeadlinesAreThoseOfTheConnection(t *testing.T) {
	for seed := range uint64(300) {
		bare := deadlineHistory(t, seed, func(c net.Conn) net.Conn { return c })
		ours := deadlineHistory(t, seed, func(c net.Conn) net.Conn { return newDeadlineConn(c) })
		for i := range bare {
			if bare[i] != ours[i] {
				t.Fatalf("seed %d, call %d: %s, want %s", seed, i, ours[i], bare[i])
			}
		}
	}
}

// deadlineHistory is what becomes of the calls of a history: those of one goroutine that reads, and of one that writes.
func deadlineHistory(t *testing.T, seed uint64, of func(net.Conn) net.Conn) (ended []string) {
	t.Helper()
	const calls = 40
	ended = make([]string, 2*calls)
	synctest.Test(t, func(*testing.T) {
		near, far := net.Pipe()
		c, begun := of(near), time.Now()
		// Each actor has times of its own, so that no two things happen at the same time.
		const step = 4 * time.Millisecond
		actor := func(i int) (random *rand.Rand, later func()) {
			random = rand.New(rand.NewPCG(seed, uint64(i)))
			return random, func() {
				at := time.Since(begun).Truncate(step) + time.Duration(1+random.IntN(20))*step + time.Duration(i)*100*time.Microsecond
				time.Sleep(at - time.Since(begun))
			}
		}
		var callers, others sync.WaitGroup
		for i, do := range []func([]byte) (int, error){c.Read, c.Write} {
			random, later := actor(i)
			callers.Go(func() {
				for n := range calls {
					later()
					size, err := do(make([]byte, 1+random.IntN(4)))
					ended[i*calls+n] = fmt.Sprint(size, errors.Is(err, os.ErrDeadlineExceeded), time.Since(begun))
				}
			})
		}
		done := make(chan struct{})
		for i, do := range []func(random *rand.Rand){
			func(random *rand.Rand) { _ = c.SetReadDeadline(anyDeadline(random)) },
			func(random *rand.Rand) { _ = c.SetWriteDeadline(anyDeadline(random)) },
			func(random *rand.Rand) { _ = c.SetDeadline(anyDeadline(random)) },
			func(random *rand.Rand) { _, _ = far.Write(make([]byte, 1+random.IntN(4))) },
			func(random *rand.Rand) { _, _ = far.Read(make([]byte, 1+random.IntN(4))) },
		} {
			random, later := actor(2 + i)
			others.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
						later()
						do(random)
					}
				}
			})
		}
		callers.Wait()
		close(done)
		_ = far.Close()
		_ = near.Close()
		others.Wait()
	})
	return ended
}

// anyDeadline is none, one that is past, or one that comes soon, at a time at which nothing else happens.
func anyDeadline(random *rand.Rand) time.Time {
	switch random.IntN(5) {
	case 0:
		return time.Time{}
	case 1:
		return time.Unix(1, 0)
	}
	return time.Now().Add(time.Duration(random.IntN(30))*4*time.Millisecond + 7*time.Microsecond)
}

// TestDeadlineContention ends a call that waits, or is about to, again and again, as net/http does after each answer: none stays,
// and no byte is lost.
func TestDeadlineContention(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	c, err := deadlineListener{l}.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2000 {
		_ = c.SetReadDeadline(time.Time{})
		ended := make(chan error, 1)
		go func() {
			_, err := c.Read(make([]byte, 1))
			ended <- err
		}()
		_ = c.SetReadDeadline(time.Unix(1, 0))
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a call that was to end: %v", err)
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := far.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 2)); n != 1 || err != nil {
			t.Fatalf("the next call: %d, %v", n, err)
		}
	}
}
