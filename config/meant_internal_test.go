package config

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/config/yamlread"
)

// TestMeant: what is proposed is what was written in other words, and nothing is proposed where that is a guess.
func TestMeant(t *testing.T) {
	for text, want := range map[string]string{
		"10 per second": "10/s", "100rps": "100/s", "100 rpm": "100/min", "5/15 minutes": "5/15m", "5 in 15 minutes": "5/15m",
		"1000 requests/hour": "1000/h", "1000 requests per day": "1000/d", "0.5 / s": "0.5/s", "20 Per Minute": "20/min",
		"3 every 2 hours": "3/2h", "10r/s": "10/s", "10rps": "10/s", "10-S": "10/s", "10-M": "10/min", "10-H": "10/h", "1k/s": "1000/s",
		"1e3/s": "1000/s", "1,000/s": "1000/s", "1M per minute": "1000000/min", "10 req/min": "10/min",
		"10-Y": "", "1,00/s": "", "e3/s": "",
		"fast": "", "10": "", "per second": "", "0 per second": "", "10 per fortnight": "", "10/0 minutes": "", "1/1/1 s": "",
		"99999999999 per second": "", "": "", "/": "",
	} {
		if got := RateMeant(text); got != want {
			t.Errorf("rate %q: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"10000/month": "permits: 10000, every: month", "5 per year": "permits: 5, every: year", "9/quarters": "permits: 9, every: quarter",
		"x/month": "", "0/month": "", "1.5/month": "", "month": "", "10/s": "", "10/2 months": "",
	} {
		if got := calendarMeant(text); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("calendar %q: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"header:X-Api-Key": `request.headers["x-api-key"]`, "header.x-customer": `request.headers["x-customer"]`, "headers.plan": `request.headers["plan"]`,
		"path": "request.path", "method": "request.method", "host": "request.host",
		"none": `'"all"'`, "client.net:24/64": "client.net", "client,path": "[client, request.path]", "client , host": "[client, request.host]",
		"client.ip,header:X-O'Hara": `[client.ip, 'request.headers["x-o''hara"]']`,
		"$binary_remote_addr":       "client.ip", "$host,$uri": "[request.host, request.path]", "$args": "",
		"client": "", "client.net": "", "path.user": "", "client.net:16/48": "",
		"header:": "", "header:a b": "", "none,path": "", "": "", ",": "",
		"client,": "", `"path"`: "", "request.path": "",
	} {
		if got := keyMeant(text); got != want {
			t.Errorf("key %q: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"1k": "1000", "2M": "2000000", "1e3": "1000", "5e+2": "500", "1,000": "1000", "12,345,678": "12345678",
		"1000": "", "1.5k": "", "1,00": "", "010k": "", "k": "", "": "", "1e999": "", "0x10": "", "1g": "",
	} {
		if got := yamlread.NumberMeant(text); got != want {
			t.Errorf("number %q: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"1 hour": "1h", "15 minutes": "15m", "15min": "15m", "30 days": "30d", "2 weeks": "2w", " 90 SECONDS ": "90s", "250 msec": "250ms",
		"": "", "hour": "", "0 hours": "", "15 months": "", "1.5 hours": "", "1 hour 5 minutes": "", "99999999999999999999 s": "",
	} {
		if got := yamlread.DurationMeant(text); got != want {
			t.Errorf("duration %q: %q, want %q", text, got, want)
		}
	}
}
