package guard_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/guard"
	"github.com/weirhq/weir/manualclock"
)

// TestGuardIdentity says which endpoints are one.
func TestGuardIdentity(t *testing.T) {
	for _, c := range []struct {
		name      string
		four, six int
		a, b      string
		same      bool
	}{
		{"port", 32, 64, "192.0.2.1:4711", "192.0.2.1:80", true},
		{"no port", 32, 64, "192.0.2.1:4711", "192.0.2.1", true},
		{"port of IPv6", 32, 128, "[2001:db8::1]:80", "2001:db8::1", true},
		{"brackets", 32, 128, "[2001:db8::1]", "[2001:db8:0::1]:9", true},
		{"mapped", 32, 64, "::ffff:192.0.2.1", "192.0.2.1", true},
		{"mapped with port", 32, 64, "[::ffff:c000:201]:80", "192.0.2.1:81", true},
		{"mapped, but another", 32, 64, "::ffff:192.0.2.1", "192.0.2.2", false},
		{"zone", 32, 128, "fe80::1%eth0", "[fe80::1%eth1]:80", true},
		{"another address", 32, 64, "192.0.2.1", "192.0.2.2", false},
		{"IPv4 network", 24, 64, "192.0.2.1", "192.0.2.254", true},
		{"another IPv4 network", 24, 64, "192.0.2.1", "192.0.3.1", false},
		{"mapped IPv4 network", 24, 64, "192.0.2.1", "::ffff:192.0.2.9", true},
		{"IPv6 network", 32, 64, "2001:db8::1", "2001:db8::ffff:1", true},
		{"another IPv6 network", 32, 64, "2001:db8::1", "2001:db8:0:1::1", false},
		{"whole IPv6 address", 32, 128, "2001:db8::1", "2001:db8::2", false},
		{"wide IPv6 network", 32, 48, "2001:db8:0:1::1", "2001:db8:0:2::1", true},
		{"another family", 8, 8, "::", "0.0.0.0", false},
		{"paths", 32, 64, "/run/a.sock", "/run/b.sock", false},
		{"one path", 32, 64, "/run/a.sock", "/run/a.sock", true},
		{"hosts have ports", 32, 64, "host:80", "host:81", false},
		{"space", 32, 64, " 192.0.2.1", "192.0.2.1", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, _ := on(t, func(o *guard.Options) { o.CapacityTokens, o.IPv4Prefix, o.IPv6Prefix = 2, c.four, c.six })
			check(t, g, c.a)
			if d := check(t, g, c.b); d.Remaining == 0 != c.same {
				t.Errorf("%q and %q: %+v", c.a, c.b, d)
			}
			if n := g.Stats().TrackedEndpoints; n == 1 != c.same {
				t.Errorf("%d endpoints are tracked", n)
			}
		})
	}
}

// TestGuardAddrIsItsText compares CheckAddr with Check.
func TestGuardAddrIsItsText(t *testing.T) {
	for _, text := range []string{"192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "fe80::1%eth0", "::", "0.0.0.0"} {
		g, _ := on(t, nil)
		if d, err := g.CheckAddr(netip.MustParseAddr(text)); d.Remaining != 11 || err != nil {
			t.Errorf("%s: %+v, %v", text, d, err)
		}
		if d := check(t, g, text); d.Remaining != 10 {
			t.Errorf("%s: %+v", text, d)
		}
	}
}

// TestGuardOperationsAreSubjects gives each operation of an address a bucket of its own, wherever it comes from.
func TestGuardOperationsAreSubjects(t *testing.T) {
	g, _ := on(t, func(o *guard.Options) { o.CapacityTokens, o.MaxSoftViolations, o.HardLockout = 2, 1, time.Minute })
	a, mapped, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("::ffff:192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for _, op := range []uint64{0, 1, 1 << 63} {
		for _, c := range []struct {
			addr netip.Addr
			want weir.Reason
		}{{a, weir.ReasonNone}, {mapped, weir.ReasonNone}, {a, weir.ReasonHardLockout}, {mapped, weir.ReasonHardLockout}, {b, weir.ReasonNone}} {
			if d, err := g.CheckOperation(op, c.addr); d.Reason != c.want || err != nil {
				t.Errorf("operation %d of %v: %+v, %v", op, c.addr, d, err)
			}
		}
	}
	// The address itself is another subject.
	if d, _ := g.CheckAddr(a); !d.Allowed {
		t.Errorf("%+v", d)
	}
}

// TestGuardNamesAreNotAddresses has a name with the bytes of an address.
func TestGuardNamesAreNotAddresses(t *testing.T) {
	g, _ := on(t, nil)
	check(t, g, "2001:db8::1")
	masked := netip.MustParseAddr("2001:db8::").As16()
	for _, name := range []string{string(masked[:]), string(masked[:]) + strings.Repeat("\x00", 9)} {
		if d := check(t, g, name); d.Remaining != 11 {
			t.Errorf("%q: %+v", name, d)
		}
	}
}

// FuzzGuardEndpoint checks an endpoint of any text: it is tracked, it is one endpoint whatever is asked of it, and if it is an
// address with a port, the port makes no difference.
func FuzzGuardEndpoint(f *testing.F) {
	for _, seed := range []string{
		"", "192.0.2.1", "192.0.2.1:80", "[2001:db8::1]:80", "2001:db8::1", "::ffff:192.0.2.1", "fe80::1%eth0", "[fe80::1%]:1",
		"/run/server.sock", "@abstract", "host:80", "[", "]:", ":", "::", "1.2.3", "01.2.3.4", "1.2.3.4:99999", "0.0.0.0:000000", "\x00", "\xff",
	} {
		f.Add(seed)
	}
	o := guard.DefaultOptions()
	o.Clock, o.MaxTrackedEndpoints = manualclock.New(0), 0
	g, err := guard.New(o)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = g.Close() })
	f.Fuzz(func(t *testing.T, endpoint string) {
		g.Reset(endpoint)
		d, err := g.Check(endpoint)
		if endpoint == "" {
			if err == nil || d.Allowed {
				t.Fatalf("%+v", d)
			}
			return
		}
		if err != nil || !d.Allowed || d.Remaining != 11 {
			t.Fatalf("%q: %+v, %v", endpoint, d, err)
		}
		if p, err := netip.ParseAddrPort(endpoint); err == nil {
			if d, err = g.CheckAddr(p.Addr()); d.Remaining != 10 || err != nil {
				t.Fatalf("%q is not its address: %+v, %v", endpoint, d, err)
			}
			d, err = g.Check(netip.AddrPortFrom(p.Addr(), ^p.Port()).String())
			if d.Remaining != 9 || err != nil {
				t.Fatalf("%q depends on its port: %+v, %v", endpoint, d, err)
			}
		}
		if !g.Reset(endpoint) || g.Reset(endpoint) {
			t.Fatalf("%q is not one endpoint", endpoint)
		}
	})
}
