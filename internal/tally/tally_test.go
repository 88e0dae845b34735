package tally_test

import (
	"sync"
	"testing"

	"github.com/weirhq/weir/internal/tally"
)

func TestTallyContention(t *testing.T) {
	var n tally.Tally
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range 1000 {
				n.Add()
			}
		})
	}
	all.Wait()
	if n.Sum() != 64_000 {
		t.Errorf("%d", n.Sum())
	}
}
