package table

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"
)

// TestSlotsAskForLargePages looks up in the maps of the process whether large pages are wanted where the slots of a table lie, and
// that they are not where the system has none.
func TestSlotsAskForLargePages(t *testing.T) {
	_, err := os.Stat("/sys/kernel/mm/transparent_hugepage")
	there := err == nil && largePages.wanted
	table := New(Options{Words: 2, Shards: 4, FreshAt: freshAt})
	for key := range uint64(20_000) {
		table.put(hash(key), 1<<62, 0, 0)
	}
	for i := range table.shards {
		d := table.shards[i].dir.Load()
		for at := range d.segments {
			g := d.segments[at].Load()
			at := uintptr(unsafe.Pointer(&g.slots[0]))
			flags := flagsAt(t, at)
			if asked := strings.Contains(flags, " hg"); asked != there && (asked || len(g.slots) >= leastLarge) {
				t.Fatalf("%d slots at %#x: the flags are %q, want hg among them: %t", g.size, at, flags, there)
			}
		}
	}
}

// flagsAt returns the flags of the mapping that an address lies in.
func flagsAt(t *testing.T, at uintptr) string {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := false
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var from, to uintptr
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x ", &from, &to); n == 2 {
			in = from <= at && at < to
		}
		if flags, ok := strings.CutPrefix(lines.Text(), "VmFlags:"); ok && in {
			return flags
		}
	}
	t.Fatalf("no mapping has %#x: %v", at, lines.Err())
	return ""
}

func TestLargePagesAreTurnedOff(t *testing.T) {
	for _, c := range []struct {
		page    int
		godebug string
		want    bool
	}{
		{4096, "", true},
		{4096, "gctrace=1,disablethp=0", true},
		{4096, "disablethp=1", false},
		{4096, "gctrace=1,disablethp=1,madvdontneed=1", false},
		{16384, "", false},
		{65536, "disablethp=0", false},
	} {
		if got := wantsLarge(c.page, c.godebug); got != c.want {
			t.Errorf("pages of %d, GODEBUG=%q: %v, want %v", c.page, c.godebug, got, c.want)
		}
	}
}
