package flagvalue_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/flagvalue"
)

func TestNetworks(t *testing.T) {
	networks := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	v := flagvalue.Networks(&networks)
	if got := v.String(); got != "127.0.0.0/8,::1" {
		t.Errorf("the default is %s", got)
	}
	for _, s := range []string{"10.1.2.3/8, 192.0.2.1", "::ffff:198.51.100.0/120"} {
		if err := v.Set(s); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	if got := v.String(); got != "10.0.0.0/8,192.0.2.1,198.51.100.0/24" {
		t.Errorf("after two uses it is %s", got)
	}
	for _, s := range []string{"", "10.0.0.0/33", "10.0.0.1,", "example.com", "fe80::1%eth0", "::ffff:0:0/32"} {
		if err := v.Set(s); err == nil || !strings.Contains(err.Error(), "must be addresses or networks") {
			t.Errorf("%q: %v", s, err)
		}
	}
}
