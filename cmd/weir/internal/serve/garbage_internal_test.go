package serve

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

func TestGarbagePercent(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		live, scanned uint64
		want          int
	}{
		{0, 0, 200},             // at the start
		{4 * mb, mb, 200},       // a small server
		{16 * mb, 4 * mb, 50},   // eight megabytes are always allowed
		{16 * mb, 16 * mb, 100}, // as without tables
		{80 * mb, 4 * mb, 10},   // tables
		{800 * mb, 4 * mb, 10},  // large ones
		{800 * mb, 400 * mb, 50},
		{8 * mb, 80 * mb, 200}, // stacks
	} {
		if got := garbagePercent(c.live, c.scanned); got != c.want {
			t.Errorf("%d bytes, of which %d are read: %d %%, want %d", c.live, c.scanned, got, c.want)
		}
	}
}

// TestTablesLeaveLittleGarbage: memory without pointers is not given as much room again.
func TestTablesLeaveLittleGarbage(t *testing.T) {
	followGarbage()
	table := make([]uint64, 8<<20)
	percent := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	for end := time.Now().Add(time.Minute); ; runtime.Gosched() {
		runtime.GC()
		if metrics.Read(percent); percent[0].Value.Uint64() < 50 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d %% of garbage beside a large table", percent[0].Value.Uint64())
		}
	}
	runtime.KeepAlive(table)
}
