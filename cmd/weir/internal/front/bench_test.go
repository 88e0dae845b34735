package front_test

import (
	"fmt"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/front"
)

// BenchmarkSeats: what a command costs of it, and what a connection costs that comes when there are as many as may be.
func BenchmarkSeats(b *testing.B) {
	b.Run("use", func(b *testing.B) {
		bound := front.NewBounded(10_000, 9_000, nil)
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			seat := bound.Add(&closing{owner: "192.0.2.1"})
			for p.Next() {
				seat.Use()
				seat.Rest()
			}
		})
	})
	for _, most := range []int{1_000, 10_000, 100_000} {
		for name, use := range map[string]bool{"silent": false, "idle": true} {
			b.Run(fmt.Sprintf("full/%s/%d", name, most), func(b *testing.B) {
				bound := front.NewBounded(most, 0, nil)
				add := func(i int) {
					seat := bound.Add(&closing{owner: fmt.Sprintf("192.0.%d.%d", i>>8&0xff, i&0xff)})
					if use {
						seat.Touch()
					}
				}
				for i := range most {
					add(i)
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					add(i)
				}
			})
		}
	}
}
