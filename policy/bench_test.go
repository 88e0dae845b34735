package policy_test

import (
	"net/netip"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

// BenchmarkCheck compares a check of Tiers with one of the guard in it.
func BenchmarkCheck(b *testing.B) {
	tiers, err := policy.NewTiers(policy.TiersOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer tiers.Close()
	a := &policy.Attribute{RPS: 100, Burst: 50}
	tier, err := tiers.Tier(a)
	if err != nil {
		b.Fatal(err)
	}
	o := weir.DefaultGuardOptions()
	o.CapacityTokens, o.RefillTokensPerSecond = 64, 128
	guard, err := weir.NewGuard(o)
	if err != nil {
		b.Fatal(err)
	}
	defer guard.Close()
	addrs := make([]netip.Addr, 256)
	for i := range addrs {
		addrs[i] = netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
	}
	for _, c := range []struct {
		name string
		call func(addr netip.Addr)
	}{
		{"Guard.CheckOperation", func(addr netip.Addr) { _, _ = guard.CheckOperation(1, addr) }},
		{"Tier.Check", func(addr netip.Addr) { tier.Check(1, addr) }},
		{"Tiers.Check", func(addr netip.Addr) { tiers.Check(a, 1, addr) }},
		{"no attribute", func(addr netip.Addr) { tiers.Check(nil, 1, addr) }},
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
