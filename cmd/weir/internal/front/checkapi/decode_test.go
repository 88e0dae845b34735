package checkapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/weirhq/weir/policy"
)

// request is what a check asks.
type request struct {
	policy.Named

	wait time.Duration
}

func decodeCheck(body []byte) (request, error) {
	q := ofCost(1)
	err := decode(&checkDialect, &scanner{text: body}, &q)
	return request{q.Named, q.wait}, err
}

func TestDecode(t *testing.T) {
	for body, want := range map[string]request{
		`{"key":"alice"}`: {policy.Named{Key: []byte("alice"), Cost: 1}, 0},
		` { "cost" : 0 , "key" : "a" } ` + "\r\n\t":        {policy.Named{Key: []byte("a"), Cost: 0}, 0},
		`{"policy":"p","key":"a","cost":1000000000000000}`: {policy.Named{Policy: []byte("p"), Key: []byte("a"), Cost: 1e15}, 0},
		`{"policy":"","key":"é🐟"}`:                         {policy.Named{Policy: []byte(""), Key: []byte("é🐟"), Cost: 1}, 0},
		`{"key":"\"\\\/\b\f\n\r\t\u00e9\ud83d\udc1F"}`:     {policy.Named{Key: []byte("\"\\/\b\f\n\r\té🐟"), Cost: 1}, 0},
		`{"\u006bey":"\u0000"}`:                            {policy.Named{Key: []byte("\x00"), Cost: 1}, 0},
		`{"key":"` + strings.Repeat("k", 1024) + `"}`:      {policy.Named{Key: bytes.Repeat([]byte("k"), 1024), Cost: 1}, 0},
		`{"key":""}`:                               {policy.Named{Cost: 1}, 0}, // the policy decides
		`{"key":"a","wait":2.5}`:                   {policy.Named{Key: []byte("a"), Cost: 1}, 2500 * time.Millisecond},
		`{"wait":86400,"key":"a"}`:                 {policy.Named{Key: []byte("a"), Cost: 1}, 24 * time.Hour},
		`{"wait":0.0000000019,"key":"a","cost":2}`: {policy.Named{Key: []byte("a"), Cost: 2}, time.Nanosecond},
		`{"key":"a","cost":0,"wait":0.0}`:          {policy.Named{Key: []byte("a"), Cost: 0}, 0},
		`{"charge":"afterwards","key":"a"}`:        {policy.Named{Key: []byte("a"), Cost: 1, Afterwards: true}, 0},
		`{"key":"a","charge":"before","wait":1}`:   {policy.Named{Key: []byte("a"), Cost: 1}, time.Second},
	} {
		got, err := decodeCheck([]byte(body))
		if err != nil || !bytes.Equal(got.Key, want.Key) || !bytes.Equal(got.Policy, want.Policy) ||
			(got.Policy == nil) != (want.Policy == nil) || got.Cost != want.Cost || got.wait != want.wait || got.Afterwards != want.Afterwards {
			t.Errorf("%s: %q %q %d %v, %v", body, got.Policy, got.Key, got.Cost, got.wait, err)
		}
	}
}

func TestDecodeSaysWhatIsWrong(t *testing.T) {
	for body, want := range map[string]string{
		``:                                    "not JSON: the body must be a JSON object, but the body ends at byte 0",
		`[]`:                                  "not JSON: the body must be a JSON object at byte 0, not an array",
		`"key"`:                               `not JSON: the body must be a JSON object at byte 0, not "key"`,
		`null`:                                "not JSON: the body must be a JSON object at byte 0, not null",
		"\ufeff{}":                            "not JSON: the body must be a JSON object at byte 0",
		`{}`:                                  `key: is missing; must be a string, which is "" for a policy without a key`,
		`{"key":null}`:                        "key null: must be a string that is not empty",
		`{"key":7}`:                           "key 7: must be a string that is not empty",
		`{"key":["a"]}`:                       "key an array: must be a string",
		`{"policy":true,"key":"a"}`:           "policy true: must be a string",
		`{"key":"a","policy":{}}`:             "policy an object: must be a string",
		`{"key":"a","cost":-1}`:               "cost -1: must be a whole number from 0 to 10^15",
		`{"key":"a","cost":1.5}`:              "cost 1.5: must be a whole number from 0 to 10^15, without point or exponent",
		`{"key":"a","cost":1e3}`:              "cost 1e3: must be a whole number",
		`{"key":"a","cost":01}`:               "cost 01: must be a whole number",
		`{"key":"a","cost":"5"}`:              `cost "5": must be a whole number`,
		`{"key":"a","cost":null}`:             "cost null: must be a whole number",
		`{"key":"a","cost":[1]}`:              "cost an array: must be a whole number",
		`{"key":"a","cost":}`:                 `cost "}": must be a whole number`,
		`{"key":"a","cost":`:                  "cost nothing: must be a whole number",
		`{"key":"a","cost":1000000000000001}`: "cost 1000000000000001: must be a whole number from 0 to 10^15",
		`{"key":"a","cost":99999999999999999999999}`: "cost 99999999999999999999999: must be a whole number",
		`{"key":"a","wait":-1}`:                      "wait -1: must be a number of seconds from 0 to 86400, such as 2.5, without exponent",
		`{"key":"a","wait":86400.1}`:                 "wait 86400.1: must be a number of seconds",
		`{"key":"a","wait":86401}`:                   "wait 86401: must be a number of seconds",
		`{"key":"a","wait":99999999999999999999}`:    "wait 99999999999999999999: must be a number of seconds",
		`{"key":"a","wait":1e1}`:                     "wait 1e1: must be a number of seconds",
		`{"key":"a","wait":1.}`:                      "wait 1.: must be a number of seconds",
		`{"key":"a","wait":.5}`:                      "wait .5: must be a number of seconds",
		`{"key":"a","wait":007}`:                     "wait 007: must be a number of seconds",
		`{"key":"a","wait":"5s"}`:                    `wait "5s": must be a number of seconds`,
		`{"key":"a","wait":1,"wait":1}`:              "wait: stands there twice; must be there once",
		`{"key":"a","cost":0,"wait":1}`:              "wait: must be 0 or not there with a cost of 0",
		`{"key":"a","Cost":1}`:                       `field "Cost": must be policy, key, cost, charge or wait`,
		`{"key":"a","charge":"after"}`:               `charge "after": must be "before" or "afterwards"`,
		`{"key":"a","charge":true}`:                  `charge true: must be "before" or "afterwards"`,
		`{"key":"a","charge":"before","charge":""}`:  `charge "": must be "before" or "afterwards"`,
		`{"key":"a","wait":1,"charge":"afterwards"}`: "wait: must be 0 or not there with a charge afterwards, as what was spent does not wait",
		`{"user":"a"}`:                               `field "user": must be policy, key, cost, charge or wait`,
		"{\"\\u001b[31m\":1}":                        `field "\x1b[31m": must be policy, key, cost, charge or wait`,
		`{"key":"a","key":"b"}`:                      "key: stands there twice; must be there once",
		`{"key":"a",}`:                               "not JSON: expected a string in quotes at byte 11",
		`{,"key":"a"}`:                               "not JSON: expected a string in quotes at byte 1",
		`{"key":"a" "cost":1}`:                       "not JSON: expected , or } at byte 11",
		`{"key" "a"}`:                                "not JSON: expected : after a name at byte 7",
		`{"key":"a"`:                                 "not JSON: expected , or }, but the body ends at byte 10",
		`{"key":"a"}{}`:                              "not JSON: expected nothing after the object at byte 11, not an object",
		`{"key":"a`:                                  `key: not JSON: expected " at the end of a string`,
		`{"key":"\x"}`:                               "key: not JSON: expected an escape of JSON at byte 8",
		`{"key":"\ud83d"}`:                           "key: not JSON: expected an escape of JSON at byte 8",
		`{"key":"\ud83dab"}`:                         "key: not JSON: expected an escape of JSON at byte 8",
		`{"key":"\udc1f\ud83d"}`:                     "key: not JSON: expected an escape of JSON at byte 8",
		"{\"key\":\"a\xff\"}":                        "key: not JSON: expected UTF-8 at byte 9",
		"{\"key\":\"a\nb\"}":                         "key: not JSON: control characters must be escaped at byte 9",
	} {
		_, err := decodeCheck([]byte(body))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}

var seconds = regexp.MustCompile(`^(0|[1-9]\d*)(\.\d+)?$`)

var wholeNumber = regexp.MustCompile(`^(0|[1-9]\d*)$`)

// referenceDecode does with encoding/json what decode does by hand. It is not sure about strings in which encoding/json
// has replaced something.
func referenceDecode(body []byte) (r request, ok, sure bool) {
	if !utf8.Valid(body) || !json.Valid(body) {
		return request{}, false, true
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return request{}, false, true
	}
	r.Cost = 1
	seen := map[string]bool{}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return request{}, false, true
		}
		value, err := decoder.Token()
		if err != nil || seen[name.(string)] { //nolint:forcetypeassert // the name of a member is a string
			return request{}, false, true
		}
		seen[name.(string)] = true //nolint:forcetypeassert // as above
		text, isString := value.(string)
		if strings.ContainsRune(text, utf8.RuneError) {
			return request{}, false, false
		}
		number, isNumber := value.(json.Number)
		switch {
		case name == "key" && isString:
			r.Key = []byte(text)
		case name == "policy" && isString:
			r.Policy = []byte(text)
		case name == "charge" && (text == "before" || text == "afterwards"):
			r.Afterwards = text == "afterwards"
		case name == "cost" && isNumber && wholeNumber.MatchString(number.String()):
			if r.Cost, err = strconv.ParseInt(number.String(), 10, 64); err != nil || r.Cost > 1e15 {
				return request{}, false, true
			}
		case name == "wait" && isNumber && seconds.MatchString(number.String()):
			exact, _ := new(big.Rat).SetString(number.String())
			exact.Mul(exact, big.NewRat(int64(time.Second), 1))
			whole := new(big.Int).Quo(exact.Num(), exact.Denom())
			if whole.Cmp(big.NewInt(int64(24*time.Hour))) > 0 {
				return request{}, false, true
			}
			r.wait = time.Duration(whole.Int64())
		default:
			return request{}, false, true
		}
	}
	_, err := decoder.Token()
	_, after := decoder.Token()
	return r, err == nil && errors.Is(after, io.EOF) && seen["key"] && (r.Cost > 0 && !r.Afterwards || r.wait == 0), true
}

// FuzzDecode: the decoder accepts what encoding/json accepts, apart from what it is strict about, and reads the same.
func FuzzDecode(f *testing.F) {
	for _, body := range []string{
		`{"policy":"default","key":"alice","cost":1}`, `{"key":"\u00e9\ud83d\udc1f\n"}`, `{}`, ``, `{"key":"a","cost":1e3}`,
		`{"key":"a","key":"b"}`, `{"key":{"a":[1]}}`, `{"key":"a"}x`, ` {"cost":-0,"key":"a"}`, `{"key":"\ud800"}`, `{"key":"a","wait":0.25}`, `{"key":"a","charge":"afterwards"}`,
		"{\"key\":\"\xff\"}",
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		want, ok, sure := referenceDecode(body)
		got, err := decodeCheck(bytes.Clone(body))
		if err != nil {
			if text := err.Error(); !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				t.Fatalf("%q: %q does not print", body, text)
			}
		}
		if !sure {
			return
		}
		if (err == nil) != ok {
			t.Fatalf("%q: %v, but encoding/json says %v", body, err, ok)
		}
		if ok && (!bytes.Equal(got.Key, want.Key) || !bytes.Equal(got.Policy, want.Policy) || got.Cost != want.Cost || got.wait != want.wait) {
			t.Fatalf("%q: %q %q %d %v, want %q %q %d %v", body, got.Policy, got.Key, got.Cost, got.wait, want.Policy, want.Key, want.Cost, want.wait)
		}
	})
}
