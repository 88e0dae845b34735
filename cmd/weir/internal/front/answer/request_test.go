package answer_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/front/room"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

// TestReadBodyIsBounded: a body of as many bytes as there may be is read, and none with one more, whether its length is told, and
// whether its end comes with its last bytes.
func TestReadBodyIsBounded(t *testing.T) {
	const most = 1000
	for _, n := range []int{0, 1, most - 1, most, most + 1, 3 * most} {
		for name, of := range map[string]func(io.Reader) io.Reader{
			"end alone": func(r io.Reader) io.Reader { return r }, "end with the last bytes": iotest.DataErrReader, "bytes": iotest.OneByteReader,
		} {
			for _, told := range []bool{false, true} {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", of(strings.NewReader(strings.Repeat("x", n))))
				r.ContentLength = -1
				if told {
					r.ContentLength = int64(n)
				}
				body, p := answer.ReadBody(r, nil, most, room.Share{})
				if fits := n <= most; fits != (p == nil) || fits && len(body) != n {
					t.Errorf("%d bytes, %s, length told %v: %d bytes, %+v", n, name, told, len(body), p)
				}
			}
		}
	}
}

// TestNamesOfABody: two parsers could read different values from an object with a name that stands there twice, or in another case.
func TestNamesOfABody(t *testing.T) {
	for body, want := range map[string]string{
		`{"policy":"p","key":"a","limits":{"x":"1/s","y":"2/s"},"for":60}`: "",
		`{"policy":"p","key":"a","by":"alice","for":60}`:                   "",
		`{"limits":null}`:                  "",
		`null`:                             "",
		`{"key":"a","key":"b"}`:            `member "key": must be there once`,
		`{"key":"a","\u006bey":"b"}`:       `member "key": must be there once`,
		`{"limits":{"x":"1/s","x":"2/s"}}`: `member "x": must be there once`,
		`{"key":"a","KEY":"b"}`:            `member "KEY": must be one of policy, key, `,
		`{"Key":"a"}`:                      `member "Key": must be one of policy, key, `,
		"{\"\u212aey\":\"b\"}":             "member \"\u212aey\": must be one of policy, key, ",
		`{"key":"a","for":60,"unlimited":true,"for":90}`: `member "for": must be there once`,
	} {
		var o operator.Override
		_, p := answer.Body(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body)), &o)
		switch {
		case want == "" && p != nil:
			t.Errorf("%s: %s", body, p.Detail)
		case want != "" && (p == nil || p.Status != http.StatusBadRequest || !strings.HasPrefix(p.Detail, want)):
			t.Errorf("%s: %+v, want %s", body, p, want)
		}
	}
}

// TestLargeBodiesShareRoom: what large bodies take is bounded in all, also while they arrive; others are read whatever there is of
// large ones.
func TestLargeBodiesShareRoom(t *testing.T) {
	const most = 1 << 20
	large := room.Room{Max: 3 * most / 2}
	bodies := large.Of(netip.Addr{})
	read := func(body io.Reader) ([]byte, *answer.Problem) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
		r.ContentLength = -1
		return answer.ReadBody(r, nil, most, bodies)
	}
	whole := func(n int) io.Reader { return strings.NewReader(strings.Repeat("x", n)) }
	first, p := read(whole(most))
	if p != nil {
		t.Fatal(p.Detail)
	}
	for range 3 {
		if _, p := read(whole(most)); p == nil || p.Status != http.StatusServiceUnavailable {
			t.Fatalf("a second one: %+v", p)
		}
		if _, p := read(whole(answer.MaxBody)); p != nil {
			t.Fatalf("one that is not large: %+v", p)
		}
	}
	answer.FreeBody(bodies, first)
	for _, wrong := range []io.Reader{
		whole(most + 1), iotest.TimeoutReader(iotest.OneByteReader(whole(most))),
		io.MultiReader(whole(most/2), iotest.ErrReader(io.ErrUnexpectedEOF)),
	} {
		for range 3 {
			if _, p := read(wrong); p == nil || p.Status == http.StatusServiceUnavailable {
				t.Fatalf("%+v", p)
			}
			wrong = whole(2 * most)
		}
	}
	if _, p := read(whole(most)); p != nil {
		t.Errorf("when none is there any more: %+v", p)
	}
	if _, p := read(whole(most)); p == nil {
		t.Error("what was given back makes room for more than before")
	}
}

// TestCompressedBodies: a client that compresses a body is told that it must not, and not that the body is no JSON.
func TestCompressedBodies(t *testing.T) {
	t.Parallel()
	for coding, want := range map[string]int{"": 0, "identity": 0, "Identity": 0, "gzip": 415, "identity, br": 415} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(`{}`))
		if coding != "" {
			r.Header.Set("Content-Encoding", coding)
		}
		_, p := answer.ReadBody(r, nil, answer.MaxBody, room.Share{})
		if (p != nil) != (want != 0) || p != nil && (p.Status != want || p.Field != "Content-Encoding") {
			t.Errorf("%q: %+v", coding, p)
		}
	}
}
