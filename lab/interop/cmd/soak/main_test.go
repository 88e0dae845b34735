//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/programtest"
	"github.com/weirhq/weir/lab/interop/internal/soak"
)

func TestMain(m *testing.M) {
	// One run after the other: several at once need more than two cores, and then stores and owners do not answer in time.
	if err := flag.Set("test.parallel", "1"); err != nil {
		panic(err)
	}
	os.Exit(programtest.Main(m))
}

var weirProgram = programtest.Program{Name: "weir", Dir: "../../../../cmd/weir"}

// runs runs the program for a test.
func runs(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errors bytes.Buffer
	status = run(t.Context(), append([]string{"--weir", weirProgram.Path(t)}, args...), &out, &errors)
	return status, out.String(), errors.String()
}

// TestRound is a short round with every fault: all limits are kept.
func TestRound(t *testing.T) {
	t.Parallel()
	status, stdout, stderr := runs(t, "--duration", "20s", "--seed", "8")
	t.Log(stdout)
	if status != 0 || !strings.Contains(stdout, "\nok: 0 permits minted; 0 lost") {
		t.Errorf("%d: %s", status, stderr)
	}
	for line := range strings.Lines(stdout) {
		if len(line) > 101 {
			t.Errorf("a line has %d columns: %s", len(line)-1, line)
		}
	}
}

// TestForged: the report finds one permit that was allowed but never there, or refused although it was there.
func TestForged(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"minted", "lost"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			history := filepath.Join(t.TempDir(), "history")
			status, stdout, stderr := runs(t, "--duration", "12s", "--rate", "300", "--faults", "none", "--forge", what, "--json", "--history", history)
			var report soak.Report
			if err := json.Unmarshal([]byte(stdout), &report); err != nil {
				t.Fatalf("%v: %s", err, stderr)
			}
			if status != 1 || report.OK || len(report.Failures) == 0 || (what == "minted") != (report.Minted > 0) ||
				(what == "lost") != (report.Lost > 0) {
				t.Errorf("%d: %s", status, stdout)
			}
			text, err := os.ReadFile(history)
			if err != nil {
				t.Fatal(err)
			}
			var first struct {
				What   string `json:"what"`
				Events []any  `json:"events"`
			}
			if err := json.NewDecoder(bytes.NewReader(text)).Decode(&first); err != nil || !strings.HasPrefix(first.What, what) || len(first.Events) < 10 {
				t.Errorf("%v: %.1000s", err, text)
			}
			for _, f := range report.Failures {
				t.Log(f)
			}
		})
	}
}

// TestMisuse: what cannot be meant ends the program with 2.
func TestMisuse(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"--duration 1s: must be at least 5s":       {"--duration", "1s"},
		"--rate 0: must be from 1 to 20000":        {"--rate", "0"},
		`--faults "flood": must be all, none`:      {"--faults", "flood"},
		`--forge "x": must be minted or lost`:      {"--forge", "x"},
		`"now": there must be no arguments`:        {"now"},
		`unknown flag: --speed`:                    {"--speed", "1"},
		`--weir "nowhere/weir": must be the progr`: {"--weir", "nowhere/weir"},
	} {
		if status, _, stderr := runs(t, args...); status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%q: %d %s", args, status, stderr)
		}
	}
}
