package policy_test

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

// long is a text of another package, which bounds nothing.
type long struct {
	text string
	err  error
}

func (l long) AppendTo(b []byte, _ *policy.Request) ([]byte, error) {
	return append(b, l.text...), l.err
}
func (long) String() string { return "long" }

func clientNet(tb testing.TB, v4, v6 int) policy.Text {
	tb.Helper()
	t, err := policy.ClientNet(v4, v6)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func textOf(tb testing.TB, t policy.Text, r *policy.Request) string {
	tb.Helper()
	b, err := t.AppendTo([]byte("before "), r)
	if err != nil || !strings.HasPrefix(string(b), "before ") {
		tb.Fatalf("%s: %q, %v", t, b, err)
	}
	return string(b[len("before "):])
}

func someRequest() *policy.Request {
	return &policy.Request{
		Protocol: "http", Method: "GET", Host: "Example.COM:8080", Path: "/a//b/", Query: "q=a%20b&q=c&plus=1+2",
		Route: "GET /a/b/", Header: http.Header{"X-Api-Key": {"first", "second"}, "Empty": {}},
		Client: netip.MustParseAddr("::ffff:192.0.2.7"), Attributes: map[string]string{"sub": "alice"},
	}
}

// TestOneClientHasOneKey: no spelling of an address, and no other address of its /64, makes a second client of one.
func TestOneClientHasOneKey(t *testing.T) {
	for want, addresses := range map[string][]string{
		"192.0.2.7":         {"192.0.2.7", "::ffff:192.0.2.7", "::ffff:c000:207"},
		"192.0.2.8":         {"192.0.2.8"},
		"2001:db8:1:2::/64": {"2001:db8:1:2::7", "2001:DB8:1:2:0:0:0:7", "2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::7%eth0", "2001:db8:1:2::7%evil"},
		"2001:db8:1:3::/64": {"2001:db8:1:3::7"},
		"fe80::/64":         {"fe80::1%eth0", "fe80::2%eth1"},
	} {
		for _, a := range addresses {
			if got := textOf(t, policy.Client(), &policy.Request{Client: netip.MustParseAddr(a)}); got != want {
				t.Errorf("%s: %q, want %q", a, got, want)
			}
		}
	}
}

func TestTexts(t *testing.T) {
	six := &policy.Request{Client: netip.MustParseAddr("2001:db8:1:2::7%eth0")}
	for _, c := range []struct {
		text                     policy.Text
		want, spelling, ofNobody string
	}{
		{policy.ClientIP(), "192.0.2.7", "client.ip", "-"},
		{policy.Client(), "192.0.2.7", "client", "-"},
		{clientNet(t, 24, 64), "192.0.2.0/24", "client.net", "-"},
		{clientNet(t, 32, 48), "192.0.2.7/32", "client.net(32, 48)", "-"},
		{policy.HeaderText("x-api-KEY"), "first", `request.headers["x-api-key"]`, ""},
		{policy.HeaderText("None"), "", `request.headers["none"]`, ""},
		{policy.HeaderText("empty"), "", `request.headers["empty"]`, ""},
		{policy.HeaderText("host"), "example.com", "request.host", ""},
		{policy.MethodText(), "GET", "request.method", ""},
		{policy.HostText(), "example.com", "request.host", ""},
		{policy.PathText(), "/a/b/", "request.path", ""},
		{policy.RouteText(), "GET /a/b/", "request.route", ""},
		{policy.ProtocolText(), "http", "request.protocol", ""},
		{policy.QueryText("q"), "a b", `queryParam("q")`, ""},
		{policy.QueryText("plus"), "1 2", `queryParam("plus")`, ""},
		{policy.PathValueText("id"), "", `path["id"]`, ""},
		{policy.AttributeText("sub"), "alice", `attributes["sub"]`, ""},
		{policy.AttributeText("none"), "", `attributes["none"]`, ""},
		{policy.ConstantText(`a"b`), `a"b`, `"a\"b"`, `a"b`},
		{policy.ConcatText(policy.MethodText(), policy.ConstantText(":"), policy.HostText()), "GET:example.com", `request.method + ":" + request.host`, ":"},
		{policy.ConcatText(), "", `""`, ""},
		{policy.JoinText(policy.MethodText(), policy.ConstantText(`a,\b`)), `GET,a\,\\b`, `[request.method, "a,\\b"]`, `,a\,\\b`},
		{policy.JoinText(policy.ConstantText(`a,\b`)), `a,\b`, `["a,\\b"]`, `a,\b`},
		{policy.JoinText(), "", "[]", ""},
	} {
		if got := textOf(t, c.text, someRequest()); got != c.want {
			t.Errorf("%s: %q, want %q", c.text, got, c.want)
		}
		if got := textOf(t, c.text, &policy.Request{}); got != c.ofNobody {
			t.Errorf("%s of an empty request: %q, want %q", c.text, got, c.ofNobody)
		}
		if c.text.String() != c.spelling {
			t.Errorf("%s, want %s", c.text, c.spelling)
		}
	}
	if got := textOf(t, policy.ClientIP(), six); got != "2001:db8:1:2::7" {
		t.Error(got)
	}
	if got := textOf(t, clientNet(t, 24, 56), six); got != "2001:db8:1::/56" {
		t.Error(got)
	}
	if n, err := policy.FixedNumber(-7).Int(nil); n != -7 || err != nil || policy.FixedNumber(-7).String() != "-7" {
		t.Error(n, err)
	}
}

func TestClientNetNamesWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		v4, v6 int
		want   string
	}{
		{0, 64, "weir: ClientNet: bits of IPv4 is 0: must be from 1 to 32"},
		{33, 64, "weir: ClientNet: bits of IPv4 is 33: must be from 1 to 32"},
		{24, -1, "weir: ClientNet: bits of IPv6 is -1: must be from 1 to 128"},
		{24, 129, "weir: ClientNet: bits of IPv6 is 129: must be from 1 to 128"},
	} {
		_, err := policy.ClientNet(c.v4, c.v6)
		var option *weir.OptionError
		if !errors.As(err, &option) || err.Error() != c.want {
			t.Errorf("%d, %d: %v, want %s", c.v4, c.v6, err, c.want)
		}
	}
}

func TestTextsAreBounded(t *testing.T) {
	const most = 134 // 60 bytes, a mark and a hash
	many := strings.Repeat("x", 100_000)
	r := &policy.Request{
		Protocol: many, Method: many, Host: many, Path: "/" + many, Query: "q=%20" + many, Route: many,
		Header: http.Header{"A": {many}}, Attributes: map[string]string{"a": many},
	}
	for _, text := range []policy.Text{
		policy.ProtocolText(), policy.MethodText(), policy.HostText(), policy.PathText(), policy.QueryText("q"), policy.RouteText(),
		policy.HeaderText("a"), policy.AttributeText("a"), policy.ConstantText(many), policy.JoinText(long{text: many}),
		policy.ConcatText(long{text: many}),
	} {
		if got := textOf(t, text, r); len(got) != most {
			t.Errorf("%.40s: %d bytes", text, len(got))
		}
	}
	a, b := policy.HeaderText("a"), policy.RouteText()
	if got := textOf(t, policy.JoinText(a, b), r); got != textOf(t, a, r)+","+textOf(t, b, r) {
		t.Errorf("a part that is bounded was bounded again: %q", got)
	}
	if got := textOf(t, policy.ConcatText(policy.JoinText(policy.ConcatText(a, b))), r); got != textOf(t, a, r)+textOf(t, b, r) {
		t.Errorf("parts that are bounded were bounded again: %q", got)
	}
}

func TestTextsThatFail(t *testing.T) {
	wrong := errors.New("wrong")
	for _, text := range []policy.Text{policy.JoinText(policy.MethodText(), long{"a", wrong}), policy.ConcatText(long{"a", wrong})} {
		if _, err := text.AppendTo(nil, someRequest()); !errors.Is(err, wrong) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestTextsDoNotAllocate(t *testing.T) {
	r := someRequest()
	r.Host, r.Path = "example.com:80", "/a/b"
	b := make([]byte, 0, 1024)
	all := []policy.Text{
		policy.ClientIP(), clientNet(t, 24, 64), policy.HeaderText("x-api-key"), policy.MethodText(), policy.HostText(), policy.PathText(),
		policy.RouteText(), policy.ProtocolText(), policy.QueryText("q"), policy.PathValueText("id"), policy.AttributeText("sub"),
		policy.ConstantText("a,b"),
	}
	for _, text := range append(all, policy.JoinText(all...), policy.ConcatText(all...)) {
		if n := testing.AllocsPerRun(100, func() { _, _ = text.AppendTo(b, r) }); n != 0 {
			t.Errorf("%s: %v allocations", text, n)
		}
	}
}

// FuzzQueryText holds it to net/url.
func FuzzQueryText(f *testing.F) {
	f.Add("a=1&b=2", "b")
	f.Add("a%3d=%zz&a%3D=x+y&&=;&c", "a=")
	f.Add("a;b=1&a=%2", "a")
	f.Add("a=1;&a=2", "a")
	f.Fuzz(func(t *testing.T, query, name string) {
		values, _ := url.ParseQuery(query) // passes over what it cannot read
		want := values.Get(name)
		if len(query) > 100 {
			return
		}
		if got := textOf(t, policy.QueryText(name), &policy.Request{Query: query}); got != want {
			t.Errorf("%q of %q: %q, want %q", name, query, got, want)
		}
	})
}

// FuzzJoinText: parts that differ never make the same text. A method in lower case is the one in upper case.
func FuzzJoinText(f *testing.F) {
	f.Add("a", "b,c", "a,b", "c")
	f.Add(`a\`, ",b", "a", `\,b`)
	f.Add(strings.Repeat("x", 300), "y", strings.Repeat("x", 301), "y")
	f.Add("0", "\xa5", "0", "\x98")
	f.Add("0", "get", "0", "Get")
	native := policy.JoinText(policy.RouteText(), policy.JoinText(policy.MethodText(), policy.ConstantText("-")))
	upper := func(method string) string {
		if !utf8.ValidString(method) {
			return method
		}
		return strings.ToUpper(method)
	}
	f.Fuzz(func(t *testing.T, a1, b1, a2, b2 string) {
		one, other := &policy.Request{Route: a1, Method: b1}, &policy.Request{Route: a2, Method: b2}
		same := a1 == a2 && b1 == b2
		sameInUpper := a1 == a2 && upper(b1) == upper(b2)
		if got := textOf(t, native, one) == textOf(t, native, other); got != sameInUpper {
			t.Errorf("(%q, %q) and (%q, %q) are %q and %q", a1, b1, a2, b2, textOf(t, native, one), textOf(t, native, other))
		}
		foreign1, foreign2 := policy.JoinText(long{text: a1}, long{text: b1}), policy.JoinText(long{text: a2}, long{text: b2})
		if got := textOf(t, foreign1, one) == textOf(t, foreign2, one); got != same {
			t.Errorf("(%q, %q) and (%q, %q) of another package", a1, b1, a2, b2)
		}
	})
}

func BenchmarkTexts(b *testing.B) {
	r := someRequest()
	space := make([]byte, 0, 1024)
	for _, text := range []policy.Text{
		policy.ClientIP(), policy.HeaderText("x-api-key"), policy.JoinText(policy.ClientIP(), policy.PathText()), policy.QueryText("q"),
	} {
		b.Run(text.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = text.AppendTo(space, r)
			}
		})
	}
}
