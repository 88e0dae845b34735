package answer_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
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
				body, p := answer.ReadBody(r, nil, most)
				if fits := n <= most; fits != (p == nil) || fits && len(body) != n {
					t.Errorf("%d bytes, %s, length told %v: %d bytes, %+v", n, name, told, len(body), p)
				}
			}
		}
	}
}
