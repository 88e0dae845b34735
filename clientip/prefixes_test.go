package clientip_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/weirhq/weir/clientip"
)

func TestKey(t *testing.T) {
	for _, c := range []struct {
		prefixes   clientip.Prefixes
		addr, want string
	}{
		{clientip.Prefixes{}, "192.0.2.1", "192.0.2.1"},
		{clientip.Prefixes{}, "::ffff:192.0.2.1", "192.0.2.1"},
		{clientip.Prefixes{}, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
		{clientip.Prefixes{}, "fe80::1%eth0", "fe80::/64"},
		{clientip.Prefixes{IPv4: 24}, "192.0.2.77", "192.0.2.0/24"},
		{clientip.Prefixes{IPv4: 24}, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
		{clientip.Prefixes{IPv6: 56}, "2001:db8:1:2ff::1", "2001:db8:1:200::/56"},
		{clientip.Prefixes{IPv6: 128}, "2001:DB8::1", "2001:db8::1"},
		{clientip.Prefixes{IPv6: 56}, "::ffff:192.0.2.1", "192.0.2.1"},
		{clientip.Prefixes{IPv4: 33}, "192.0.2.1", ""},
		{clientip.Prefixes{IPv6: -1}, "2001:db8::1", ""},
	} {
		if got := c.prefixes.Key(netip.MustParseAddr(c.addr)); got != c.want {
			t.Errorf("%+v: key of %s = %q, want %q", c.prefixes, c.addr, got, c.want)
		}
	}
	if got := (clientip.Prefixes{}).Key(netip.Addr{}); got != "" {
		t.Errorf("key of the zero Addr = %q", got)
	}
}

func TestMaskOfNoAddress(t *testing.T) {
	if got := (clientip.Prefixes{}).Mask(netip.Addr{}); got != (netip.Prefix{}) {
		t.Errorf("Mask of the zero Addr = %v", got)
	}
}

func TestPrefixesCheck(t *testing.T) {
	for _, p := range []clientip.Prefixes{{}, {IPv4: 1, IPv6: 1}, {IPv4: 32, IPv6: 128}} {
		if err := p.Check(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	for want, p := range map[string]clientip.Prefixes{
		"weir: clientip.Prefixes.IPv4 is 33: must be from 1 to 32, or 0 for 32":    {IPv4: 33},
		"weir: clientip.Prefixes.IPv4 is -1: must be from 1 to 32, or 0 for 32":    {IPv4: -1},
		"weir: clientip.Prefixes.IPv6 is 129: must be from 1 to 128, or 0 for 64":  {IPv6: 129},
		"weir: clientip.Prefixes.IPv6 is -64: must be from 1 to 128, or 0 for 64":  {IPv6: -64},
		"weir: clientip.Prefixes.IPv4 is 128: must be from 1 to 32, or 0 for 32":   {IPv4: 128, IPv6: 32},
		"weir: clientip.Prefixes.IPv6 is 1000: must be from 1 to 128, or 0 for 64": {IPv4: 8, IPv6: 1000},
	} {
		err := p.Check()
		if option, ok := errors.AsType[*clientip.OptionError](err); !ok || option.Error() != want {
			t.Errorf("%+v: %v, want %s", p, err, want)
		}
	}
}

// FuzzMask looks for two keys of one network, and for one key of two.
func FuzzMask(f *testing.F) {
	f.Add([]byte{192, 0, 2, 1}, []byte{192, 0, 2, 77}, 24, 64)
	f.Add(make([]byte, 16), []byte{192, 0, 2, 77}, 0, 0)
	f.Add([]byte{15: 1}, []byte{15: 2}, 32, 128)
	f.Fuzz(func(t *testing.T, first, second []byte, v4, v6 int) {
		p := clientip.Prefixes{IPv4: v4, IPv6: v6}
		a, okA := netip.AddrFromSlice(first)
		b, okB := netip.AddrFromSlice(second)
		if p.Check() != nil || !okA || !okB {
			return
		}
		if mask := p.Mask(a); mask != mask.Masked() || !mask.Contains(clientip.Fold(a)) || p.Mask(mask.Addr()) != mask {
			t.Errorf("%+v: Mask(%v) = %v", p, a, mask)
		}
		if same := p.Mask(a) == p.Mask(b); same != (p.Key(a) == p.Key(b)) {
			t.Errorf("%+v: %v and %v have the keys %q and %q", p, a, b, p.Key(a), p.Key(b))
		}
	})
}
