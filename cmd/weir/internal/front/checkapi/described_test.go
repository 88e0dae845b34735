package checkapi

import (
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/policy"
)

func decodeDescribed(body []byte, r *policy.Request) (probe bool, wait time.Duration, err error) {
	var d described
	err = decode(&describedDialect, &scanner{text: body}, &d)
	*r = d.Request
	return d.probe, d.wait, err
}

func TestDecodeDescribed(t *testing.T) {
	for body, want := range map[string]policy.Request{
		` { } `: {Protocol: "http"},
		`{"protocol":"grpc","method":"POST","host":"a:80","path":"/a\/b","query":"x=1","route":"r","client":"[2001:db8::1]:5",
		  "headers":{"x-a":"1","X-B":["2","3"],"x-c":[]},"attributes":{"k":"\u00fc"},"cost":7}`: {
			Protocol: "grpc", Method: "POST", Host: "a:80", Path: "/a/b", Query: "x=1", Route: "r",
			Client: netip.MustParseAddr("2001:db8::1"), Header: http.Header{"X-A": {"1"}, "X-B": {"2", "3"}},
			Attributes: map[string]string{"k": "ü"}, Cost: 7,
		},
		`{"path":"*","cost":1000000000000000}`: {Protocol: "http", Path: "*", Cost: maxCost},
	} {
		var got policy.Request
		if probe, _, err := decodeDescribed([]byte(body), &got); err != nil || probe || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %t, %+v, want %+v", body, err, probe, got, want)
		}
	}
	var got policy.Request
	if probe, _, err := decodeDescribed([]byte(`{"cost":0,"path":"/"}`), &got); err != nil || !probe || got.Cost != 0 || got.Path != "/" {
		t.Errorf("a probe: %v, %t, %+v", err, probe, got)
	}
	if probe, wait, err := decodeDescribed([]byte(`{"wait":1.5,"path":"/"}`), &got); err != nil || probe || wait != 1500*time.Millisecond {
		t.Errorf("ready to wait: %v, %t, %v", err, probe, wait)
	}
}

func TestDecodeDescribedMisuse(t *testing.T) {
	cases := map[string]string{
		``:                                  `not JSON: the body must be a JSON object, but the body ends at byte 0`,
		`[]`:                                `not JSON: the body must be a JSON object at byte 0, not an array`,
		`{"path":"/"} x`:                    `expected nothing after the object`,
		`{"path":"/","path":"/"}`:           `path: stands there twice; must be there once`,
		`{"pth":"/"}`:                       `field "pth": must be protocol, method, host,`,
		`{"Path":"/"}`:                      `field "Path": must be`,
		`{"path":"login"}`:                  `path "login": must be the target of a request: a path that begins with a slash`,
		`{"path":""}`:                       `path "": must be the target of a request`,
		`{"path":1}`:                        `path 1: must be a string`,
		`{"path":"/a?x","query":"y"}`:       `query "y": must be left out where path has a query`,
		`{"query":"","path":"/a?"}`:         `query "": must be left out where path has a query`,
		`{"path":"http://a/","host":"b"}`:   `host "b": must be that of the URL in path, or be left out`,
		`{"method":"DELETE ","path":"/"}`:   `method "DELETE ": must be the method of a request, such as GET, or be left out`,
		`{"method":"GET /x"}`:               `method "GET /x": must be the method of a request`,
		`{"path":"/a%00b"}`:                 `path "/a%00b": must be the target of a request`,
		`{"path":"/","host":"a.example "}`:  `host "a.example ": must be the host of a request, such as`,
		`{"path":"/","host":"a.example/"}`:  `host "a.example/": must be the host of a request, such as`,
		`{"path":"/","host":"a.example,x"}`: `host "a.example,x": must be the host of a request, such as`,
		`{"path":"http://a.example,x/"}`:    `host "a.example,x": must be the host of a request, such as`,
		`{"client":"home"}`:                 `client "home": must be an address such as 192.0.2.1`,
		`{"cost":-1}`:                       `cost -1: must be a whole number from 0 to 10^15`,
		`{"cost":1.5}`:                      `cost 1.5: must be a whole number from 0 to 10^15`,
		`{"cost":0,"wait":2}`:               `wait: must be 0 or not there with a cost of 0`,
		`{"wait":"2s"}`:                     `wait "2s": must be a number of seconds from 0 to 86400`,
		`{"cost":1000000000000001}`:         `cost 1000000000000001: must be`,
		`{"headers":[]}`:                    `headers an array: must be an object of strings, or of arrays`,
		`{"headers":{"a":1}}`:               `headers.a 1: must be an object of strings, or of arrays of strings`,
		`{"headers":{"a":["b",2]}}`:         `headers.a 2: must be a string`,
		`{"headers":{"a":["b" "c"]}}`:       `expected , or ]`,
		`{"headers":{"a":["b"`:              `expected , or ]`,
		`{"headers":{"a":`:                  `headers.a`,
		`{"attributes":"x"}`:                `attributes "x": must be an object of strings`,
		`{"attributes":{"a":"b","a":"c"}}`:  `attributes.a: stands there twice`,
		`{"attributes":{"a":null}}`:         `attributes.a null: must be a string`,
		`{"method" "GET"}`:                  `expected : after a name`,
		`{"method":"GET" "host":"a"}`:       `expected , or }`,
		`{"method":"GET",}`:                 `expected a string in quotes`,
		`{"method":"\ud800"}`:               `method: not JSON`,
	}
	cases[`{"`+strings.Repeat("x", 5000)+`":1}`] = `"...: must be protocol`
	for body, want := range cases {
		var r policy.Request
		_, _, err := decodeDescribed([]byte(body), &r)
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("%.60s: %v, want %s", body, err, want)
		}
	}
}

func FuzzDecodeDescribed(f *testing.F) {
	f.Add([]byte(`{"method":"GET","path":"/a","headers":{"a":["b"]},"attributes":{"c":"d"},"client":"::1","cost":3}`))
	f.Add([]byte(`{"headers":{"a":"b`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var r policy.Request
		if _, _, err := decodeDescribed(body, &r); err != nil {
			if err.Error() == "" {
				t.Error("an error that says nothing")
			}
			return
		}
		if r.Cost < 0 || r.Cost > maxCost || r.Path != "" && r.Path != "*" && r.Path[0] != '/' {
			t.Errorf("%+v", r)
		}
	})
}
