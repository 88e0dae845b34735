package checkapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirhq/weir/cmd/weir/internal/front/holds"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

// wantText compares what is said of a body with what can be shown.
func wantText(t *testing.T, body []byte, err error) {
	t.Helper()
	if err == nil {
		if !json.Valid(body) {
			t.Fatalf("%q: is no JSON", body)
		}
		return
	}
	text := err.Error()
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		t.Fatalf("%q: %q does not print", body, text)
	}
}

// TestReservationsEndWithAStatus: what a client is told of the end of its reservation.
func TestReservationsEndWithAStatus(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
	}{{holds.ErrUnknown, http.StatusNotFound}, {holds.ErrUnsettled, http.StatusServiceUnavailable}} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/commit", strings.NewReader(`{"id":"A"}`))
		p := settle(httptest.NewRecorder(), r, new(exchange), &commitDialect, "committed", func(*question) error { return c.err })
		if p == nil || p.Status != c.status {
			t.Errorf("%v: %+v, want %d", c.err, p, c.status)
		}
	}
}

func FuzzDecodeBatch(f *testing.F) {
	for _, body := range []string{
		`{"checks":[{"key":"a"},{"policy":"p","key":"b","cost":0},{"request":{"path":"/","headers":{"a":["b"]}}}],"atomic":true}`,
		`{"atomic":false,"checks":[{"request":{"cost":0}}]}`, `{"checks":[{"key":"\u00e9"}]}`, `{"checks":[`, `{"checks":[{"request":{"x":1}}]}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var b batch
		err := decode(&batchDialect, &scanner{text: bytes.Clone(body)}, &b)
		checks, atomic := b.checks, b.atomic
		wantText(t, body, err)
		if err != nil {
			return
		}
		if len(checks) == 0 || len(checks) > mostChecks || atomic && len(checks) > mostAtomic {
			t.Fatalf("%q: %d checks", body, len(checks))
		}
		for i := range checks {
			a := &checks[i]
			if a.Cost < 0 || a.Cost > maxCost || len(a.Key) > operator.MostKey || a.wait != 0 || a.id != nil || a.expires != 0 ||
				a.described != nil && (a.Key != nil || a.Policy != nil || a.described.wait > 0) {
				t.Fatalf("%q: %+v", body, a)
			}
		}
	})
}

func FuzzDecodeReserve(f *testing.F) {
	for _, body := range []string{
		`{"policy":"p","key":"b","cost":7,"wait":2,"expires_in":0.5}`, `{"request":{"path":"/","cost":3,"wait":1},"expires_in":60}`,
		`{"id":"a","cost":5}`, `{"id":"\ud83d\udc1f"}`, `{"key":"a","expires_in":86400.000}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		a := ofCost(1)
		a.expires = holds.DefaultExpiry
		err := decode(&reserveDialect, &scanner{text: bytes.Clone(body)}, &a)
		wantText(t, body, err)
		if err == nil && (a.Cost < 1 || a.Cost > maxCost || len(a.Key) > operator.MostKey || a.expires < holds.LeastExpiry || a.expires > holds.MostExpiry ||
			a.wait < 0 || a.wait > holds.MostExpiry || a.id != nil || a.described != nil && (a.Key != nil || a.described.probe)) {
			t.Fatalf("%q: %+v", body, a)
		}
		for _, d := range []*dialect[question]{&commitDialect, &cancelDialect} {
			a := ofCost(-1)
			err := decode(d, &scanner{text: bytes.Clone(body)}, &a)
			wantText(t, body, err)
			if err == nil && (a.id == nil || a.Cost < -1 || a.Cost > maxCost || a.Key != nil) {
				t.Fatalf("%q: %+v", body, a)
			}
		}
	})
}
