package postgres_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// BenchmarkTake measures decisions that are allowed, of many keys and of one, by a server that waits for the disk and by one that
// does not.
func BenchmarkTake(b *testing.B) {
	onDisk := disk(b)
	limit := weir.TokenBucket(weir.PerSecond(1_000_000), 1_000_000_000)
	for _, fsync := range []bool{true, false} {
		server := shared
		if fsync {
			server = onDisk
		}
		for _, keys := range []int64{1024, 1} {
			for _, callers := range []int{1, 32} {
				b.Run(fmt.Sprintf("fsync=%t/keys=%d/callers=%d", fsync, keys, callers), func(b *testing.B) {
					s := newStore(b, server.locks(b), nil)
					var next atomic.Int64
					var wait sync.WaitGroup
					b.ResetTimer()
					for range callers {
						wait.Go(func() {
							d := make([]weir.Decision, 1)
							for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
								key := "user-" + strconv.FormatInt(i%keys, 10)
								if err := store.Take(context.Background(), s, []store.Charge{{Policy: "api", Key: key, Limit: limit, N: 1}}, d); err != nil {
									b.Error(err)
									return
								}
							}
						})
					}
					wait.Wait()
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
				})
			}
		}
	}
}
