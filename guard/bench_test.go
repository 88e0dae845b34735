package guard_test

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/guard"
	"github.com/weirhq/weir/manualclock"
)

// BenchmarkGuardCheck is a known endpoint that is allowed, told to slow down, and locked out.
func BenchmarkGuardCheck(b *testing.B) {
	for _, c := range []struct {
		name   string
		reason weir.Reason
		change func(o *guard.Options)
	}{
		{"allowed", weir.ReasonNone, func(o *guard.Options) { o.RefillTokensPerSecond = 1e9 }},
		{"soft throttle", weir.ReasonSoftThrottle, func(o *guard.Options) { o.MaxSoftViolations = 1 << 30 }},
		{"locked out", weir.ReasonHardLockout, func(o *guard.Options) { o.HardLockout, o.MaxSoftViolations = time.Hour, 1 }},
	} {
		o := guard.DefaultOptions()
		c.change(&o)
		if c.reason != weir.ReasonNone {
			o.InitialTokens, o.RefillTokensPerSecond = 0, 0.001
		}
		g, err := guard.New(o)
		if err != nil {
			b.Fatal(err)
		}
		addr := netip.MustParseAddr("192.0.2.1")
		for _, form := range []struct {
			name  string
			check func() (weir.Decision, error)
		}{
			{"address", func() (weir.Decision, error) { return g.CheckAddr(addr) }},
			{"text", func() (weir.Decision, error) { return g.Check("192.0.2.1:4711") }},
			{"name", func() (weir.Decision, error) { return g.Check("/run/server.sock") }},
		} {
			b.Run(c.name+"/"+form.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if d, _ := form.check(); d.Reason != c.reason {
						b.Fatalf("%+v", d)
					}
				}
			})
		}
		_ = g.Close()
	}
}

// BenchmarkGuardNewcomers is a flood of endpoints that never come twice, at a guard that tracks as many as it may: of
// which none can be forgotten, and of which all can be.
func BenchmarkGuardNewcomers(b *testing.B) {
	for _, c := range []struct {
		name string
		wait time.Duration
	}{{"no room", 0}, {"room", 24 * time.Hour}} {
		b.Run(c.name, func(b *testing.B) {
			o := guard.DefaultOptions()
			clock := manualclock.New(0)
			o.Clock, o.CleanupInterval = clock, 1e6*time.Second
			g, err := guard.New(o)
			if err != nil {
				b.Fatal(err)
			}
			defer g.Close()
			n := 0
			for ; n < o.MaxTrackedEndpoints; n++ {
				g.CheckAddr(address6(n))
			}
			clock.Advance(c.wait)
			b.ReportAllocs()
			for b.Loop() {
				n++
				g.CheckAddr(address6(n))
				if c.wait > 0 && n%64 == 0 {
					clock.Advance(64 * time.Millisecond)
				}
			}
		})
	}
}

// address6 is an address in the nth network of 64 bits.
func address6(n int) netip.Addr {
	b := [16]byte{0x20, 0x01}
	binary.BigEndian.PutUint32(b[4:], uint32(n))
	return netip.AddrFrom16(b)
}
