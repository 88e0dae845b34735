//go:build !race

package checkapi_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// TestLargeBatchesLeaveRoom: batches that have ended, in whatever way, take nothing of what large ones have together.
func TestLargeBatchesLeaveRoom(t *testing.T) {
	h, _ := newFront(t)
	pad := strings.Repeat(" ", 1<<20-100)
	for i := range 300 {
		body, want := pad+`{"checks":[{"key":"`+strconv.Itoa(i)+`"}]}`, http.StatusOK
		switch i % 3 {
		case 1:
			body, want = pad+`{"checks":[{"key":1}]}`, http.StatusBadRequest
		case 2:
			body, want = pad+pad, http.StatusRequestEntityTooLarge
		}
		if w := send(h, "POST", "/v1/batch", "application/json", body); w.Code != want {
			t.Fatalf("batch %d: %d %s, want %d", i, w.Code, w.Body, want)
		}
		if w := send(h, "POST", "/v1/batch", "text/plain", body); w.Code != http.StatusUnsupportedMediaType {
			t.Fatalf("batch %d: %d", i, w.Code)
		}
	}
}
