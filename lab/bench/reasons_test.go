package bench

import (
	"os"
	"strings"
	"testing"
)

// TestMissedTargetsHaveReasons looks for a reason of each target that docs/benchmarks/raw.md says was missed.
func TestMissedTargetsHaveReasons(t *testing.T) {
	raw, err := os.ReadFile("../../docs/benchmarks/raw.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), "\n## Targets\n")
	table, told, _ := strings.Cut(rest, "\n### Why targets are missed\n\n")
	told, _, _ = strings.Cut(told, "\n## ")
	var goals []Goal
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, " | "); len(cells) == 3 && strings.HasPrefix(line, "| ") {
			met := cells[2] != "NO |\n"
			goals = append(goals, Goal{strings.TrimPrefix(cells[0], "| "), met, cells[1]})
		}
	}
	if len(goals) < 100 {
		t.Fatalf("the page has %d targets only", len(goals))
	}
	for _, g := range goals {
		if !g.Met && g.why() == (Goal{}).why() {
			t.Errorf("no reason is known why it was missed: %s: %s", g.Name, g.Found)
		}
	}
	if want := strings.TrimRight(whyMissed(goals), "\n"); strings.TrimSpace(told) != want {
		t.Errorf("the page says\n%s\nwant\n%s", told, want)
	}
}

func TestWhyMissed(t *testing.T) {
	got := whyMissed([]Goal{
		{"3 limits, 10 rules, goroutines: 1, <= 750 ns", false, "800"},
		{"unheard of", false, "1"},
		{"met", true, "1"},
		{"3 limits, 10k rules, goroutines: 1, <= 750 ns", false, "900"},
	})
	want := "- `3 limits, 10 rules, goroutines: 1, <= 750 ns`; `3 limits, 10k rules, goroutines: 1, <= 750 ns`: No part of it"
	if !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "\n- `unheard of`: The reason is not known yet.\n") {
		t.Errorf("got %s", got)
	}
	if got := whyMissed([]Goal{{"met", true, "1"}}); got != "" {
		t.Errorf("got %q where all are met", got)
	}
}
