package tiers_test

import (
	"net/netip"
	"testing"

	"github.com/weirhq/weir/guard"
	"github.com/weirhq/weir/tiers"
)

// BenchmarkCheck compares a check of Tiers with one of the guard in it.
func BenchmarkCheck(b *testing.B) {
	ts, err := tiers.New(tiers.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer ts.Close()
	a := &tiers.Attribute{RPS: 100, Burst: 50}
	tier, err := ts.Tier(a)
	if err != nil {
		b.Fatal(err)
	}
	o := guard.DefaultOptions()
	o.CapacityTokens, o.RefillTokensPerSecond = 64, 128
	g, err := guard.New(o)
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	addrs := make([]netip.Addr, 256)
	for i := range addrs {
		addrs[i] = netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
	}
	for _, c := range []struct {
		name string
		call func(addr netip.Addr)
	}{
		{"Guard.CheckOperation", func(addr netip.Addr) { _, _ = g.CheckOperation(1, addr) }},
		{"Tier.Check", func(addr netip.Addr) { tier.Check(1, addr) }},
		{"Tiers.Check", func(addr netip.Addr) { ts.Check(a, 1, addr) }},
		{"no attribute", func(addr netip.Addr) { ts.Check(nil, 1, addr) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				c.call(addrs[i&255])
				i++
			}
		})
		b.Run(c.name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					c.call(addrs[i&255])
				}
			})
		})
	}
}
