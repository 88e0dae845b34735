package serve

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// The collector of Go usually runs when there is as much garbage as there was memory in use. Tables of keys make most of that,
// and cost the collector nothing, as they hold no pointers: a million keys would have garbage double the memory of the server for
// no gain. Here there may be as much garbage as there is memory for the collector to read, and more in a small server.
const (
	// leastGarbage is how many bytes of garbage there may be at least.
	leastGarbage = 8 << 20
	// leastPercent is how much there may be at least, in percent of the memory in use: tables that grow leave some, too.
	leastPercent = 10
	// mostPercent is how much there may be at most, which also bounds that of the start, before anything was collected.
	mostPercent = 200
)

// garbagePercent is how much garbage there may be, in percent of live bytes in use, of which the collector reads those scanned.
func garbagePercent(live, scanned uint64) int {
	const all = 100
	return int(min(max(max(scanned, leastGarbage)*all/max(live, 1), leastPercent), mostPercent))
}

// sentinel is large enough to be found unused by itself.
type sentinel [16]byte

// boundGarbage bounds the garbage of the process from now on, unless the environment says how much there may be.
var boundGarbage = sync.OnceFunc(func() {
	if os.Getenv("GOGC") == "" {
		followGarbage()
	}
})

// followGarbage bounds the garbage now and after each collection.
func followGarbage() {
	figures := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/total:bytes"}}
	percent := 0
	var adjust func(*sentinel)
	adjust = func(s *sentinel) {
		metrics.Read(figures)
		if now := garbagePercent(figures[0].Value.Uint64(), figures[1].Value.Uint64()); now != percent {
			percent = now
			debug.SetGCPercent(percent)
		}
		runtime.SetFinalizer(s, adjust) // the next collection finds it unused again
	}
	adjust(new(sentinel))
}
