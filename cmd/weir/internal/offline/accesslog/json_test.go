package accesslog

import (
	"bytes"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestJSON(t *testing.T) {
	client := addr("192.0.2.1")
	for _, test := range []struct {
		name, line string
		want       entry
	}{
		{
			"all in one",
			`{"time":"2024-07-01T12:00:00Z","client_ip":"192.0.2.1","method":"GET","uri":"/a?b","host":"www.example.com","status":200,"size":5,"user_agent":"x","referer":"y"}`,
			entry{time: noon, client: client, host: "www.example.com", method: "GET", path: "/a", query: "b", status: 200, bytes: 5, userAgent: "x", referer: "y"},
		},
		{
			"white space",
			" \t{ \"ts\" :\t1719835200 , \"remote\" : \"192.0.2.1\" } \r",
			entry{time: noon, client: client},
		},
		{
			"Envoy Gateway",
			`{":authority":"www.example.com:8080","bytes_received":0,"bytes_sent":512,"connection_termination_details":null,` +
				`"downstream_local_address":"10.244.0.14:10080","downstream_remote_address":"192.0.2.1:45678","duration":3,"method":"GET",` +
				`"protocol":"HTTP/1.1","requested_server_name":null,"response_code":200,"response_code_details":"via_upstream",` +
				`"response_flags":"-","route_name":"httproute/shop/web/rule/0","start_time":"2024-07-01T12:00:00.000Z",` +
				`"upstream_host":"10.244.0.13:3000","user-agent":"curl/8.5.0","x-envoy-origin-path":"/a?b=c","x-forwarded-for":"198.51.100.1"}`,
			entry{
				time: noon, client: client, method: "GET", host: "www.example.com", path: "/a", query: "b=c", status: 200, bytes: 512,
				userAgent: "curl/8.5.0",
			},
		},
		{
			"preference does not depend on the order of the members",
			`{"time":"2024-07-01T12:00:03Z","StartUTC":"2024-07-01T12:00:00Z","remote_ip":"198.51.100.1","client_ip":"192.0.2.1"}`,
			entry{time: noon, client: client},
		},
		{
			"a time that is none",
			`{"ts":0.003,"time":"2024-07-01T12:00:00Z","client_ip":"192.0.2.1"}`,
			entry{time: noon, client: client},
		},
		{
			"missing values",
			`{"ts":null,"msec":"-","time":1719835200,"client_ip":"","remote_ip":"-","remote_addr":"192.0.2.1","status":"-","bytes":null,"user_agent":"-"}`,
			entry{time: noon, client: client},
		},
		{
			"values of other types",
			`{"ts":true,"start_time":{},"msec":[],"time":[1719835200,{"x":[1]}],"client_ip":{"x":"198.51.100.1"},"remote_ip":7,"remote_addr":["192.0.2.1"],"status":"OK","response_code":"503","size":12.5,"bytes":-1,"method":false,"host":[["x"]]}`,
			entry{time: noon, client: client, status: 503},
		},
		{
			"the last of equal names counts",
			`{"time":"x","time":1719835200,"client_ip":"198.51.100.1","client_ip":"192.0.2.1","status":200,"status":null}`,
			entry{time: noon, client: client},
		},
		{
			"the last of equal objects counts",
			`{"ts":1719835200,"request":{"remote_ip":"198.51.100.1","method":"PUT","headers":{"User-Agent":["x"]}},"request":{"remote_ip":"192.0.2.1","headers":{"Referer":["y"],"User-Agent":["z"]},"headers":{"Referer":["a"]}}}`,
			entry{time: noon, client: client, referer: "a"},
		},
		{
			"an object after a string and a string after an object",
			`{"ts":1719835200,"request":"GET /a HTTP/1.1","request":{"method":"PUT"},"request":{"uri":"/b"},"request":"GET /c HTTP/1.1"}`,
			entry{time: noon, method: "GET", path: "/c"},
		},
		{
			"names with escapes",
			`{"t\u0073":1719835200,"\u0063lient_ip":"192.0.2.\u0031","x\"":1}`,
			entry{time: noon, client: client},
		},
		{
			"escapes",
			`{"ts":1719835200,"path":"\/\"\\\b\f\n\r\t\u00e4\u20ac?\ud83d\ude00\ud83d\ud83dx\ude00"}`,
			entry{time: noon, path: "/\"\\\b\f\n\r\tä€", query: "\U0001F600\uFFFD\uFFFDx\uFFFD"},
		},
		{
			"request line before path",
			`{"ts":1719835200,"request":"POST /sent?a HTTP/1.1","uri":"/rewritten","args":"b"}`,
			entry{time: noon, method: "POST", path: "/sent", query: "a"},
		},
		{
			"request that is something else",
			`{"ts":1719835200,"request":"6f1e","method":"GET","uri":"/x"}`,
			entry{time: noon, method: "GET", path: "/x"},
		},
		{
			"query on its own",
			`{"ts":1719835200,"path":"/x","query_string":"?a=b"}`,
			entry{time: noon, path: "/x", query: "a=b"},
		},
		{
			"absolute URL",
			`{"ts":1719835200,"url":"HTTPS://www.example.com:8443/x?y"}`,
			entry{time: noon, host: "www.example.com", path: "/x", query: "y"},
		},
		{
			"CONNECT",
			`{"ts":1719835200,"method":"CONNECT","url":"[2001:db8::1]:443"}`,
			entry{time: noon, method: "CONNECT", host: "2001:db8::1"},
		},
		{
			"status 0",
			`{"ts":1719835200,"client_ip":"client.example.org:80","response_code":0}`,
			entry{time: noon, name: "client.example.org"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, reason := readOne(t, test.line)
			if reason != "" || got != test.want {
				t.Errorf("%s\n got %+v %s\nwant %+v", test.line, got, reason, test.want)
			}
		})
	}
}

func TestJSONMalformed(t *testing.T) {
	deep := func(n int) string {
		return `{"ts":1719835200,"method":"GET","x":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`
	}
	if _, reason := readOne(t, deep(maxDepth)); reason != "" {
		t.Errorf("%d levels: %s", maxDepth, reason)
	}
	for line, want := range map[string]string{
		`{}`:                "time: no member of the JSON object has it",
		`{`:                 "JSON at byte 2: " + wantString,
		`{"`:                "JSON at byte 2: " + wantQuote,
		`{"a`:               "JSON at byte 2: " + wantQuote,
		`{"a"`:              "JSON at byte 5: " + wantColon,
		`{"a":`:             "JSON at byte 6: " + wantValue,
		`{"a":1`:            "JSON at byte 7: " + wantComma,
		`{"a":1,`:           "JSON at byte 8: " + wantString,
		`{"a":1,}`:          "JSON at byte 8: " + wantString,
		`{"a":1;"b":2}`:     "JSON at byte 7: " + wantComma,
		`{"a" 1}`:           "JSON at byte 6: " + wantColon,
		`{a:1}`:             "JSON at byte 2: " + wantString,
		`{'a':1}`:           "JSON at byte 2: " + wantString,
		`{"a":x}`:           "JSON at byte 6: " + wantValue,
		`{"a":nul}`:         "JSON at byte 6: " + wantValue,
		`{"a":[1}`:          "JSON at byte 8: " + wantBracket,
		`{"a":[1,]}`:        "JSON at byte 9: " + wantValue,
		`{"a":[,1]}`:        "JSON at byte 7: " + wantValue,
		`{"time":[1}`:       "JSON at byte 11: " + wantBracket,
		`{"time":[x]}`:      "JSON at byte 10: " + wantValue,
		`{"a":{"b"}}`:       "JSON at byte 10: " + wantColon,
		`{"a":01}`:          "JSON at byte 7: " + wantComma,
		`{"a":1.}`:          "JSON at byte 8: " + wantNumber,
		`{"a":-}`:           "JSON at byte 7: " + wantNumber,
		`{"a":1e}`:          "JSON at byte 8: " + wantNumber,
		`{"a":+1}`:          "JSON at byte 6: " + wantValue,
		`{"a":.5}`:          "JSON at byte 6: " + wantValue,
		`{"a":"\x"}`:        "JSON at byte 7: " + wantEscape,
		`{"a":"\u12g4"}`:    "JSON at byte 7: " + wantEscape,
		`{"a":"\u12`:        "JSON at byte 7: " + wantEscape,
		`{"a":1}{"b":2}`:    "JSON at byte 8: " + wantEnd,
		`{"a":1}]`:          "JSON at byte 8: " + wantEnd,
		"{\"a\":\"\x01\"}":  "JSON at byte 7: " + wantControl,
		`{"method":"GET"}`:  "time: no member of the JSON object has it",
		`{"ts":1719835200}`: "line: a JSON object without client, method and path is not a request",
		`{"ts":1719835200,"msg":"started","host":"x","status":1}`: "line: a JSON object without client, method and path is not a request",
		`{"ts":12,"time":"2024-06-31T00:00:00Z","client_ip":"x"}`: `time "12": ` + wantEpoch,
		`{"time":"2024-06-31T00:00:00Z","client_ip":"192.0.2.1"}`: `time "2024-06-31T00:00:00Z": ` + wantDay,
		`{"ts":-1719835200,"client_ip":"192.0.2.1"}`:              `time "-1719835200": ` + wantTime,
		deep(maxDepth + 1):                                           "JSON at byte 100: " + wantDepth,
		strings.Repeat(`{"request":`, 1000):                          "JSON at byte 705: " + wantDepth,
		`{"ts":` + strings.Repeat("[", 100000):                       "JSON at byte 70: " + wantDepth,
		`{"request":` + strings.Repeat(`{"request":{"headers":`, 60): "JSON at byte 705: " + wantDepth,
	} {
		if got, reason := readOne(t, line); reason != want {
			t.Errorf("%.100s\n got %s %+v\nwant %s", line, reason, got, want)
		}
	}
}

func TestPlainLength(t *testing.T) {
	for c := range 256 {
		for n := range 20 {
			// What follows must not matter, nor what precedes if it is plain.
			for _, follower := range []byte{'x', '"', 0, '!', 0x80, 0xff} {
				for _, before := range []byte{'x', ' ', '!', '#', '[', ']', 0x7f, 0x80, 0xff} {
					text := append(bytes.Repeat([]byte{before}, n), byte(c), follower, follower, '"')
					want := bytes.IndexFunc(text, func(c rune) bool { return c < ' ' || c == '"' || c == '\\' })
					if got := plainLength(text); got != want {
						t.Fatalf("%q: %d, want %d", text, got, want)
					}
				}
			}
		}
	}
}

// TestJSONFields checks that every name that is known is read.
func TestJSONFields(t *testing.T) {
	values := [quantities]string{
		timeField: "1719835200", clientField: `"192.0.2.1"`, methodField: `"GET"`, requestField: `"GET /x HTTP/1.1"`,
		targetField: `"/x"`, queryField: `"x"`, hostField: `"x"`, statusField: "200", sizeField: "5",
		refererField: `"x"`, userAgentField: `"x"`,
	}
	zero := entry{time: noon}
	for q, field := range jsonFields {
		if len(field.names) > maxNames {
			t.Errorf("%s: %d names, want at most %d", field.of, len(field.names), maxNames)
		}
		for _, name := range field.names {
			line := values[q]
			parts := strings.Split(name, ".")
			for i := len(parts) - 1; i > 0; i-- {
				line = `{"` + parts[i] + `":` + line + `}`
			}
			line = `{"` + parts[0] + `":` + line
			other := `,"remote":"192.0.2.7"}`
			if quantity(q) != timeField {
				other = `,"time":1719835200` + other
			}
			got, reason := readOne(t, line+other)
			if quantity(q) != clientField {
				got.client = zero.client
			}
			if reason != "" || quantity(q) != timeField && got == zero || got.time != noon {
				t.Errorf("%s: got %+v %s", name, got, reason)
			}
		}
	}
}

// TestJSONFieldsAreDocumented: the page of replay has a row for each part of a record, with all of its names in their order.
func TestJSONFieldsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../../../docs/replay.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range jsonFields {
		if row := " | `" + strings.Join(field.names, "`, `") + "` |\n"; !strings.Contains(string(page), row) {
			t.Errorf("%s: no row with%s", field.of, row)
		}
	}
}

// referenceJSON reads a line with encoding/json.
func referenceJSON(line []byte) (e entry, malformed bool) {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.UseNumber()
	var top map[string]any
	if !json.Valid(line) || decoder.Decode(&top) != nil {
		return entry{}, true
	}
	// all returns the values of a quantity in order of preference.
	all := func(q quantity) (list []string) {
		for _, path := range jsonFields[q].names {
			var v any = top
			for part := range strings.SplitSeq(path, ".") {
				object, _ := v.(map[string]any)
				v = object[part]
			}
			if array, ok := v.([]any); ok && len(array) > 0 {
				v = array[0]
			}
			switch v := v.(type) {
			case string:
				if noDash(v) != "" {
					list = append(list, v)
				}
			case json.Number:
				if acceptsNumber[q] {
					list = append(list, string(v))
				}
			}
		}
		return list
	}
	first := func(q quantity) string {
		return append(all(q), "")[0]
	}
	ok := false
	for _, text := range all(timeField) {
		if e.time, ok = referenceTime(text); ok {
			break
		}
	}
	if !ok {
		return entry{}, true
	}
	e.client, e.name = referenceClient(first(clientField))
	e.method = first(methodField)
	e.host = referenceHost(first(hostField))
	if request := first(requestField); request != "" {
		line := entry{host: e.host}
		if request[0] == '/' {
			referenceTarget(&line, request)
		} else {
			referenceRequest(&line, request)
		}
		if e.method == "" {
			e.method = line.method
		}
		e.host, e.path, e.query = line.host, line.path, line.query
	}
	if e.path == "" {
		query := e.query
		if referenceTarget(&e, first(targetField)); first(targetField) == "" {
			e.query = query
		}
	}
	if e.query == "" {
		e.query = strings.TrimPrefix(first(queryField), "?")
	}
	if !e.client.IsValid() && e.name == "" && e.method == "" && e.path == "" {
		return entry{}, true
	}
	for _, text := range all(statusField) {
		if text == "0" || len(text) == 3 && strings.Trim(text, "0123456789") == "" && (text == "000" || text[0] != '0') {
			e.status, _ = strconv.Atoi(text)
			break
		}
	}
	for _, text := range all(sizeField) {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && strings.Trim(text, "0123456789") == "" {
			e.bytes = n
			break
		}
	}
	e.referer, e.userAgent = first(refererField), first(userAgentField)
	return e, false
}

func nesting(line []byte) (deepest int) {
	depth, quoted := 0, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '{' || c == '['):
			depth++
			deepest = max(deepest, depth)
		case !quoted && (c == '}' || c == ']'):
			depth--
		}
	}
	return deepest
}

func FuzzJSON(f *testing.F) {
	for _, line := range sampleLines(f) {
		if line[0] == '{' {
			f.Add([]byte(line))
		}
	}
	for _, seed := range []string{
		`{"t\u0073":1719835200,"\u0063lient_ip":"192.0.2.\u0031","x\"":[{},[],"",-0.5e+7,true,false,null]}`,
		`{"ts":1719835200,"request":{"remote_ip":"198.51.100.1","headers":{"User-Agent":["x"]}},"request":{"headers":{"Referer":["y",1]},"headers":[]}}`,
		`{"ts":1719835200,"request":"GET /a HTTP/1.1","request":{"uri":"/b"},"request":null,"request":"/c?d"}`,
		`{"ts":1719835200,"method":"CONNECT","url":"http://x@[2001:db8::1]:443?y","query":"?","size":"9223372036854775808","bytes":"7"}`,
		"{\"ts\":\"2024-06-30T23:59:60Z\",\"path\":\"\xff\\ud83d\\ude00\\ud83d\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if len(line) == 0 || line[0] != '{' || bytes.IndexByte(line, '\n') >= 0 {
			return
		}
		got, reason := readOne(t, string(line))
		if nesting(line) > maxDepth {
			if reason == "" {
				t.Errorf("%q: accepted, nested deeper than %d", line, maxDepth)
			}
			return
		}
		want, malformed := referenceJSON(line)
		replaceInvalid(&got)
		if malformed != (reason != "") || got != want {
			t.Errorf("%q\n got %+v %s\nwant %+v, malformed %v", line, got, reason, want, malformed)
		}
	})
}
