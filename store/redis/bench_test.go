package redis

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/store"
)

var callersOfBenchmarks = []int{1, 32, 256}

// share runs f from so many callers until b.N calls have been made.
//
// Beside the decisions per second it reports the CPU time of the server and of this process per decision, which depend less on what
// else the machine does.
func (s *server) share(b *testing.B, callers int, f func(caller int, i int64) error) {
	b.Helper()
	serverBefore, before := s.cpu(b), ownCPU(b)
	var next atomic.Int64
	var wait sync.WaitGroup
	b.ResetTimer()
	for caller := range callers {
		wait.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := f(caller, i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
	b.ReportMetric(float64(ownCPU(b)-before)/1000/float64(b.N), "client-us/op")
	b.ReportMetric(float64(s.cpu(b)-serverBefore)/1000/float64(b.N), "server-us/op")
	b.ReportMetric(0, "ns/op")
}

// cpu is what the server's process has used.
func (s *server) cpu(b *testing.B) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+2:]))
	const tick = 10 * time.Millisecond
	return time.Duration(must(strconv.Atoi(fields[11]))+must(strconv.Atoi(fields[12]))) * tick
}

// ownCPU is what this process has used.
func ownCPU(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

var keysOfBenchmarks = func() (keys [1024]string) {
	for i := range keys {
		keys[i] = "user-" + strconv.Itoa(i)
	}
	return keys
}()

// BenchmarkLend measures loans of which a half is given back: two calls each.
func BenchmarkLend(b *testing.B) {
	server := startServer(b)
	l := weir.TokenBucket(weir.Per(1_000_000, time.Second), 1_000_000_000)
	for _, callers := range callersOfBenchmarks {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			s := server.open(Options{})
			server.share(b, callers, func(_ int, i int64) error {
				c := store.Charge{Policy: "api", Key: keysOfBenchmarks[i%1024], Limit: l, N: 100}
				loan, _, err := store.Lend(context.Background(), s, c, 1)
				if err != nil {
					return err
				}
				return store.Return(context.Background(), s, loan, loan.Lent()/2)
			})
		})
	}
}

// BenchmarkTake measures decisions that are allowed.
func BenchmarkTake(b *testing.B) {
	server := startServer(b)
	year := 300 * 24 * time.Hour
	for _, l := range []weir.Limit{
		weir.TokenBucket(weir.Per(1_000_000, time.Second), 1_000_000_000),
		weir.FixedWindow(weir.Per(1_000_000_000, year)),
		weir.SlidingWindow(weir.Per(1_000_000_000, year), 0),
		weir.SlidingCounter(weir.Per(1_000_000_000, year)),
		weir.CalendarWindow(1_000_000_000, algo.Calendar{Unit: algo.CalendarMonth}),
	} {
		for _, callers := range callersOfBenchmarks {
			b.Run(fmt.Sprintf("%v/callers=%d", l.Algorithm(), callers), func(b *testing.B) {
				s := server.open(Options{})
				server.share(b, callers, func(_ int, i int64) error {
					d := make([]weir.Decision, 1)
					return store.Take(context.Background(), s, []store.Charge{{Policy: l.Algorithm().String(), Key: keysOfBenchmarks[i%1024], Limit: l, N: 1}}, d)
				})
			})
		}
	}
}
