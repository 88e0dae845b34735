package terminal_test

import (
	"math"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

func TestNumber(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 7: "7", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234567: "-1,234,567", -100: "-100",
	} {
		if got := terminal.Number(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	if got := terminal.Number(uint64(math.MaxUint64)); got != "18,446,744,073,709,551,615" {
		t.Error(got)
	}
}
