package checkapi

import (
	"testing"
	"time"

	"github.com/weirhq/weir"
)

func TestSecondsAreRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", 1: "0.001", time.Millisecond: "0.001", time.Millisecond + 1: "0.002", 100 * time.Millisecond: "0.1",
		time.Second: "1", 999*time.Millisecond + 1: "1", 1050 * time.Millisecond: "1.05", 24 * time.Hour: "86400",
		weir.Never: "null", weir.Never - 1: "9223372036.855",
	} {
		if got := string(appendSeconds(nil, d)); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
