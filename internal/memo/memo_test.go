package memo_test

import (
	"errors"
	"testing"

	"github.com/weirhq/weir/internal/memo"
)

var errOdd = errors.New("odd")

func TestTable(t *testing.T) {
	var table memo.Table[int, int]
	calls := 0
	half := func(n int) (int, error) {
		calls++
		if n%2 != 0 {
			return 0, errOdd
		}
		return n / 2, nil
	}
	for range 3 {
		if got, err := table.Of(8, half); got != 4 || err != nil {
			t.Fatal(got, err)
		}
	}
	if calls != 1 {
		t.Errorf("%d calls, want 1", calls)
	}
	for range 3 {
		if _, err := table.Of(7, half); !errors.Is(err, errOdd) {
			t.Fatal(err)
		}
	}
	if calls != 4 {
		t.Errorf("%d calls: an error is remembered", calls)
	}
	for i := range memo.Max {
		_, _ = table.Of(10+2*i, half)
	}
	calls = 0
	if got, err := table.Of(8, half); got != 4 || err != nil || calls != 1 {
		t.Errorf("%d, %v after %d calls: it is still known", got, err, calls)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = table.Of(8, half) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
