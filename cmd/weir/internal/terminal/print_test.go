package terminal_test

import (
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
}
