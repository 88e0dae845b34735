//go:build !race

package house_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// TestGrowthOfTheProgramIsSeen has .ci/size compare figures that are a tenth above those of .ci/program, and a little more.
func TestGrowthOfTheProgramIsSeen(t *testing.T) {
	text, err := os.ReadFile(".ci/program")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	var figures []int64
	for line := range strings.Lines(string(text)) {
		var name string
		var figure int64
		if strings.HasPrefix(line, "#") {
			continue
		}
		if _, err := fmt.Sscan(line, &name, &figure); err != nil || len(strings.Fields(line)) < 4 {
			t.Fatalf("%q: must be a name, a figure and a reason: %v", line, err)
		}
		names, figures = append(names, name), append(figures, figure)
	}
	if fmt.Sprint(names) != "[bytes packages modules]" {
		t.Fatalf(".ci/program has %q", names)
	}
	for grown := -1; grown < len(figures); grown++ {
		var args []string
		for i, figure := range figures {
			now := figure * 11 / 10
			if i == grown {
				now++
			}
			args = append(args, strconv.FormatInt(now, 10))
		}
		out, err := exec.CommandContext(t.Context(), ".ci/size", args...).CombinedOutput()
		switch {
		case grown < 0 && err != nil:
			t.Errorf("%v: %v\n%s", args, err, out)
		case grown >= 0 && (err == nil || !strings.Contains(string(out), "\n"+names[grown]+": more than a tenth above ")):
			t.Errorf("%s has grown, and this is not said: %v\n%s", names[grown], err, out)
		}
	}
}
