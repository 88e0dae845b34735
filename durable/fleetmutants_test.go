package durable_test

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var playMutants = flag.Bool("fleetmutants", false, "play fleets of mutants of the code until each is caught")

// mutant is a change of the code that breaks a promise.
type mutant struct {
	name  string
	edits []edit
}

// edit is a change of a file: a text that stands there once, and the one in its place.
type edit struct{ file, from, to string }

// mutants are those that a simulated fleet must catch.
var mutants = []mutant{
	{"the bucket behind leases is not lowered", []edit{{
		"store/leasedbound.go", "p.most -= muldiv(t.limit.Rate().Permits, span, window) + 1", "p.most -= 0 * muldiv(1, span, window)",
	}}},
	{"leased permits are spent after their time", []edit{{
		"store/leasedbound.go", "return span - span/driftShare", "return 20 * p.span",
	}}},
	{"what is left of a lease is given back though it has come back", []edit{{
		"store/record.go", "r.terms.law.Cancel(r.state, r.at, n, m)", "r.terms.law.Refund(r.state, r.at, n+0*m.Taken)",
	}}},
	{"a reservation is settled twice", []edit{{
		"store/record.go", "\tr.giveBack(&r.held[i], r.held[i].n)\n\tr.held = slices.Delete(r.held, i, i+1)\n", "\tr.giveBack(&r.held[i], r.held[i].n)\n",
	}}},
	{"a refund counts twice", []edit{{
		"store/memory.go", "e.refund(charges[i].N)", "e.refund(2 * charges[i].N)",
	}}},
	{"the drift of optimistic limits is not bounded", []edit{{
		"store/optimistickey.go", "n <= k.drift-k.owed-k.sent", "n <= k.drift",
	}}},
	{"what the store was not told is forgotten", []edit{{
		"store/optimisticsync.go", "\t\tk.owed += k.sent\n", "",
	}}},
	{"one of two keys is charged although the other refuses", []edit{{
		"store/memory.go", "allowed = allowed && d.Allowed", "allowed = allowed || d.Allowed",
	}}},
	{"records are not fenced by their revision", []edit{{
		"durable/file.go", "f.records.get(c.writes[i].Name).Revision != c.writes[i].Revision", "c.writes[i].Revision < -1",
	}}},
	{"records are not fenced by the term", []edit{
		{"durable/file.go", "c.epoch != f.contents.epoch", "c.epoch > f.contents.epoch"},
		{"durable/file.go", "\tcase <-t.done:\n", "\tcase <-t.engine.ctx.Done():\n"},
		{"durable/file.go", "f.records.get(c.writes[i].Name).Revision != c.writes[i].Revision", "c.writes[i].Revision < -1"},
	}},
	{"what a record is ahead is not burned", []edit{{
		"durable/write.go", "burn, now := ahead, time.Now()", "burn, now := int64(0), time.Now()",
	}}},
	{"permits are granted without a record", []edit{{
		"durable/bucket.go", "n <= b.covers() && b.owner.holds()", "b.owner.holds()",
	}}},
	{"an owner goes on after its term", []edit{{
		"durable/owner.go", "return now.Before(o.term.Expires())", "return !now.IsZero()",
	}, {
		"durable/owner.go", "\t\tcase <-t.Done():\n\t\t\town.depose(ErrDeposed)\n", "",
	}, {
		"durable/node.go", "\tcase <-term.Done():\n\tcase <-stop:\n", "\tcase <-stop:\n",
	}}},
	{"the next owner goes by its own clock, however wrong", []edit{{
		"durable/clock.go", "off > clocksAgree || off < -clocksAgree", "off > 1<<62",
	}}},
	{"a write is not synced", []edit{{
		"durable/file.go", "err = f.file.Sync()", "err = nil",
	}}},
	{"a bit that has flipped is not noticed", []edit{{
		"durable/fileframe.go", "binary.BigEndian.Uint32(b[tail:]) == crc32.Checksum(b[frameHead:tail], castagnoli) && b[len(b)-1] == frameEnd", "b[len(b)-1] == frameEnd && tail > 0",
	}}},
	{"a reservation of an owner comes back twice", []edit{{
		"durable/bucket.go", "found = b.state.Cancel(h.ID, h.Expires)", "found = b.state.Cancel(h.ID, h.Expires)\n\t\tb.state.Refund(b.state.Most() / 100)",
	}}},
}

// TestFleetMutants breaks the code in one place after the other. With -fleetmutants, a fleet that is simulated with it breaks a promise,
// and the seed is printed; otherwise it only makes sure that the code still has these places.
func TestFleetMutants(t *testing.T) {
	for i := range mutants {
		t.Run(mutants[i].name, func(t *testing.T) { mutants[i].play(t) })
	}
}

// play plays a mutant.
func (m *mutant) play(t *testing.T) {
	t.Helper()
	directory, replace := t.TempDir(), map[string]string{}
	for _, e := range m.edits {
		path := must(filepath.Abs(filepath.Join("..", e.file)))
		from := path
		if replace[path] != "" {
			from = replace[path]
		}
		code := string(must(os.ReadFile(from)))
		if n := strings.Count(code, e.from); n != 1 {
			t.Fatalf("%s has %q %d times, want once: the mutant must follow the code", e.file, e.from, n)
		}
		replace[path] = filepath.Join(directory, strings.ReplaceAll(e.file, "/", "_"))
		if err := os.WriteFile(replace[path], []byte(strings.Replace(code, e.from, e.to, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if !*playMutants {
		return
	}
	overlay := filepath.Join(directory, "overlay.json")
	if err := os.WriteFile(overlay, must(json.Marshal(map[string]any{"Replace": replace})), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-count=1", "-run", "^TestFleetContention$", ".", "-args",
		"-fleet", "1", "-fleetfor", "2m")
	out, err := c.CombinedOutput()
	seed := regexp.MustCompile(`(?s)seed \d+, trace [0-9a-f]+: .*?\n`).Find(out)
	if err == nil || seed == nil {
		t.Fatalf("no fleet has broken a promise: %v\n%s", err, out)
	}
	t.Logf("caught: %s", seed)
}
