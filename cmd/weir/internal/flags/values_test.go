package flags_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

func TestValues(t *testing.T) {
	n, d, word, address := int64(5), time.Second, "text", "127.0.0.1:7070"
	integer := flags.Int(&n, -1, 1000)
	duration := flags.Duration(&d, time.Millisecond, time.Hour)
	days := flags.Duration(new(time.Duration), time.Second, 3660*24*time.Hour)
	choice := flags.OneOf(&word, "text", "json")
	listen := flags.Listen(&address)
	free := flags.Text(new(string), 1, 5)
	printed := flags.Printed(new(string), 1, 5)
	text := flags.UTF8(new(string), 1, 5)
	for _, c := range []struct {
		value     pflag.Value
		set, want string
		wrong     string // what the error says, "" if there is none
	}{
		{integer, "1_000", "1000", ""},
		{integer, "-1", "-1", ""},
		{integer, "1001", "", "must be a whole number from -1 to 1000"},
		{integer, "-2", "", "must be a whole number"},
		{integer, "", "", "must be a whole number"},
		{integer, "1e2", "", "must be a whole number"},
		{integer, "99999999999999999999", "", "must be a whole number"},
		{duration, "90s", "1m30s", ""},
		{duration, "1h", "1h", ""},
		{duration, "1ms", "1ms", ""},
		{duration, "61m", "", "must be a duration such as 500ms, 10s or 1m30s, from 1ms to 1h"},
		{duration, "0", "", "must be a duration"},
		{duration, "10", "", "must be a duration"},
		{days, "1d", "24h", ""},
		{days, "2w12h", "348h", ""},
		{days, "3661d", "", "must be a duration such as 1m30s, 2h or 30d, from 1s to 3660d"},
		{days, "-1h", "", "must be a duration"},
		{free, "äöx", "äöx", ""},
		{free, "", "", "has 0 bytes: must have from 1 to 5"},
		{free, "äöü", "", "has 6 bytes: must have from 1 to 5"},
		{printed, "ä ö", "ä ö", ""},
		{printed, "", "", "has 0 bytes: must have from 1 to 5"},
		{printed, "123456", "", "has 6 bytes: must have from 1 to 5"},
		{printed, "a\nb", "", "must be 1 to 5 bytes of printable text in UTF-8"},
		{printed, "\u202e", "", "must be 1 to 5 bytes of printable text in UTF-8"},
		{printed, "\xff", "", "must be 1 to 5 bytes of printable text in UTF-8"},
		{text, "a\nö", "a\nö", ""},
		{text, "", "", "has 0 bytes: must have from 1 to 5"},
		{text, "\xff", "", "must be 1 to 5 bytes of text in UTF-8"},
		{choice, "json", "json", ""},
		{choice, "JSON", "", `must be text or json; did you mean "json"?`},
		{choice, "", "", "must be text or json"},
		{listen, ":8080", ":8080", ""},
		{listen, "[::1]:0", "[::1]:0", ""},
		{listen, "localhost:080", "localhost:80", ""},
		{listen, "localhost", "", "must be host:port"},
		{listen, "localhost:http", "", "must be host:port"},
		{listen, "http://localhost:80", "", "must be host:port"},
		{listen, "127.0.0.1:65536", "", "must be host:port"},
		{listen, "127.0.0.1:-1", "", "must be host:port"},
		{listen, "", "", "must be host:port"},
	} {
		before := c.value.String()
		err := c.value.Set(c.set)
		switch {
		case c.wrong == "" && (err != nil || c.value.String() != c.want):
			t.Errorf("%T %q: %s, %v, want %s", c.value, c.set, c.value, err, c.want)
		case c.wrong != "" && (err == nil || !strings.HasPrefix(err.Error(), c.wrong) || c.value.String() != before):
			t.Errorf("%T %q: %s, %v, want %s", c.value, c.set, c.value, err, c.wrong)
		}
	}
	if n != -1 || d != time.Millisecond || word != "json" || address != "localhost:80" {
		t.Errorf("stored %d, %v, %s, %s", n, d, word, address)
	}
}

func TestNetworks(t *testing.T) {
	networks := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	v := flags.Networks(&networks)
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
