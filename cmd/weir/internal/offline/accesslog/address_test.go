package accesslog

import (
	"net/netip"
	"testing"
)

func TestSetClient(t *testing.T) {
	for text, want := range map[string]struct{ addr, name string }{
		"":                        {},
		"-":                       {},
		"192.0.2.1":               {addr: "192.0.2.1"},
		"192.0.2.1:40000":         {addr: "192.0.2.1"},
		"[192.0.2.1]:40000":       {addr: "192.0.2.1"},
		"2001:db8::1":             {addr: "2001:db8::1"},
		"2001:DB8:0:0:0:0:0:1":    {addr: "2001:db8::1"},
		"[2001:db8::1]":           {addr: "2001:db8::1"},
		"[2001:db8::1]:443":       {addr: "2001:db8::1"},
		"2001:db8::1:443":         {addr: "2001:db8::1:443"},
		"::ffff:192.0.2.1":        {addr: "192.0.2.1"},
		"[::ffff:c000:201]:80":    {addr: "192.0.2.1"},
		"fe80::1%eth0":            {addr: "fe80::1%eth0"},
		"::":                      {addr: "::"},
		"::1":                     {addr: "::1"},
		"client.example.org":      {name: "client.example.org"},
		"client.example.org:8080": {name: "client.example.org"},
		"unix:":                   {name: "unix:"},
		"192.0.2.256":             {name: "192.0.2.256"},
		"192.0.2.01":              {name: "192.0.2.01"},
		"192.0.2":                 {name: "192.0.2"},
		"192.0.2.1:70000":         {name: "192.0.2.1:70000"},
		"192.0.2.1:":              {name: "192.0.2.1:"},
		"[2001:db8::1":            {name: "[2001:db8::1"},
		"[]":                      {name: "[]"},
		":80":                     {name: ":80"},
		"2001:db8::1::2":          {name: "2001:db8::1::2"},
		"203.0.113.1,":            {name: "203.0.113.1,"},
	} {
		var rec Record
		setClient(&rec, []byte(text))
		var addr netip.Addr
		if want.addr != "" {
			addr = netip.MustParseAddr(want.addr)
		}
		if rec.Client != addr || string(rec.ClientName) != want.name {
			t.Errorf("%q: got %v, name %q, want %v, name %q", text, rec.Client, rec.ClientName, addr, want.name)
		}
	}
}

func FuzzAddr(f *testing.F) {
	for _, seed := range []string{
		"192.0.2.1", "255.255.255.255", "192.0.2.256", "192.0.02.1", "1.2.3", "1.2.3.4.5", "1..2.3",
		"::", "::1", "1::", "2001:db8::1", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1::2:3:4:5:6:7:8",
		"1:2:3:4:5:6:192.0.2.1", "::ffff:192.0.2.1", "::192.0.2.1:1", "1:2:3:4:5:6:7:192.0.2.1", "64:ff9b::192.0.2.33",
		"12345::", ":::", "1:", ":1", "::1%eth0", "fe80::1%", "%", "1.2.3.4%x", "::ffff:1.2.3.4%x", "::g",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > maxAddr {
			return
		}
		got, ok := parseAddr([]byte(text))
		want, err := netip.ParseAddr(text)
		if ok != (err == nil) || ok && got != want.Unmap() {
			t.Errorf("%q: got %v, %v, netip has %v, %v", text, got, ok, want, err)
		}
	})
}
