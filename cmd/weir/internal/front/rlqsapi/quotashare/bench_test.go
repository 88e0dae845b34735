package quotashare_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlqsapi/quotashare"
)

// BenchmarkReport is one report of one of so many proxies that divide a limit and report every 5 s, with a demand that changes.
func BenchmarkReport(b *testing.B) {
	for _, proxies := range []int{50, 1000, 10_000} {
		b.Run(fmt.Sprint(proxies), func(b *testing.B) {
			l := quotashare.New(quotashare.Options{Send: func(*quotashare.Share, quotashare.Assignment) {}})
			var err error
			limit := weir.TokenBucket(weir.Rate{Permits: 100_000, Period: time.Second}, 100_000)
			shares := make([]*quotashare.Share, proxies)
			for i := range shares {
				if shares[i], err = l.Subscribe(i, []quotashare.Need{{Key: "k", Limit: limit}}, false, 0); err != nil {
					b.Fatal(err)
				}
			}
			now, step := int64(0), int64(5*time.Second)/int64(proxies)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				now += step
				demand := 5 * 100_000 / proxies * (1 + (i/proxies+i)%3)
				l.Report(shares[i%proxies], uint64(demand), 0, 5*time.Second, now)
				if l.Next(now) <= now {
					l.Tick(now)
				}
				i++
			}
		})
	}
}
