package redis

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"
)

// TestMain has more tests run at a time than there are processors, as most of them wait for servers that stand still.
func TestMain(m *testing.M) {
	flag.Parse()
	parallel := flag.Lookup("test.parallel")
	if parallel.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = parallel.Value.Set(strconv.Itoa(2 * runtime.GOMAXPROCS(0)))
	}
	os.Exit(m.Run())
}
