package models

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/programtest"
)

var full = flag.Bool("full", false, "check the models with the larger parameters of README.md")

// round is a model with parameters.
type round struct {
	file, parameters string
	bound            string // wider parameters with which the model must be refuted, as the bound is the least one
}

// short is checked with every mutant of the model, each of which one of its rounds must refute; long is what README.md has.
var (
	short = []round{
		{"leased_bucket", "BLOCKS=2 B=5 S=1", "CAP=5"},
		{"leased_window", "BLOCKS=2 L=5 MOST=2 W=3", ""},
		{"owner", "TICKS=1 L=2 AHEAD=1 LATES=1", ""},
		{"owner", "TICKS=0 L=2 AHEAD=1 LATES=1", ""},
		{"optimistic", "NODES=1 B=4 DRIFT=2", ""},
		{"optimistic", "NODES=2 B=2 DRIFT=2", "BOUND=3"},
	}
	long = []round{
		{"leased_bucket", "BLOCKS=2 B=7 S=2", "CAP=6"},
		{"leased_bucket", "BLOCKS=2 B=7 S=2 CAP=5", ""},
		{"leased_bucket", "BLOCKS=2 B=10 S=3", "CAP=8"},
		{"leased_window", "BLOCKS=3 L=5 MOST=2 W=3", ""},
		{"owner", "TICKS=1 L=3 AHEAD=2 LATES=1", ""},
		{"owner", "TICKS=1 L=2 AHEAD=1 LATES=2", ""},
		{"owner", "TICKS=0 L=3 AHEAD=2 LATES=1", ""},
		{"optimistic", "NODES=2 B=4 DRIFT=2", "BOUND=5"},
		{"optimistic", "NODES=3 B=2 DRIFT=1", "BOUND=3"},
	}
)

// which is compiled into a model, so that one program is it and all of its mutants.
const which = `#include <stdlib.h>
static int which;
__attribute__((constructor)) static void read_which(void) { const char *s = getenv("MUTANT"); which = s ? atoi(s) : 0; }
`

// model is a model that was compiled.
type model struct{ directory, program string }

// compile makes the program that goes through a model.
func compile(t *testing.T, file, parameters string) model {
	t.Helper()
	spin, gcc := programtest.Installed(t, "spin"), programtest.Installed(t, "gcc")
	m := model{directory: t.TempDir()}
	m.program = filepath.Join(m.directory, "pan")
	programtest.Write(t, m.directory, "which.h", which)
	source, err := filepath.Abs(file + ".pml")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-a", "-DMUTANT=c_expr{which}"}
	for p := range strings.FieldsSeq(parameters) {
		args = append(args, "-D"+p)
	}
	m.run(t, nil, spin, append(args, source)...)
	optimize := "-O0"
	if *full {
		optimize = "-O2"
	}
	m.run(t, nil, gcc, optimize, "-w", "-DSAFETY", "-DCOLLAPSE", "-include", "which.h", "-o", m.program, "pan.c")
	return m
}

func (m model) run(t *testing.T, env []string, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = m.directory, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
	return string(out)
}

var (
	statesLine = regexp.MustCompile(`(?m)^ *(\d+) states, stored`)
	errorsLine = regexp.MustCompile(`errors: (\d+)`)
)

// check goes through all states of a model or a mutant of it, until one breaks a promise, and returns how many there are.
func (m model) check(t *testing.T, mutant int) (states int, refuted bool) {
	t.Helper()
	depth, table := "-m300000", "-w18" // steps of a history, and places for states as a power of two
	if *full {
		depth, table = "-m5000000", "-w22"
	}
	out := m.run(t, []string{fmt.Sprintf("MUTANT=%d", mutant)}, m.program, "-E", depth, table)
	found, errors := statesLine.FindStringSubmatch(out), errorsLine.FindStringSubmatch(out)
	if found == nil || errors == nil {
		t.Fatalf("not the output of a check:\n%s", out)
	}
	states, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	refuted = errors[1] != "0"
	switch {
	case refuted && !strings.Contains(out, "assertion violated"), !refuted && strings.Contains(out, "Search not completed"),
		strings.Contains(out, "depth too small"):
		t.Fatalf("the check has not ended:\n%s", out)
	}
	return states, refuted
}

var mutantLine = regexp.MustCompile(`(?m)^#define (\w+) +\(MUTANT == (\d+)`)

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// mutants are those of a model, by their number.
func mutants(t *testing.T, file string) map[int]string {
	t.Helper()
	all := map[int]string{}
	for _, m := range mutantLine.FindAllStringSubmatch(read(t, file+".pml"), -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		all[n] = strings.TrimPrefix(all[n]+" and "+m[1], " and ")
	}
	return all
}

// TestModels: no state of a model breaks its promise, and a state of each mutant does.
func TestModels(t *testing.T) {
	t.Parallel()
	readme := read(t, "README.md")
	left := map[string]map[int]string{}
	for _, r := range short {
		if left[r.file] == nil {
			left[r.file] = mutants(t, r.file)
			for n, name := range left[r.file] {
				if row := fmt.Sprintf("| %s.pml | %d | %#q |", r.file, n, name); !strings.Contains(readme, row) {
					t.Errorf("README.md does not have %s", row)
				}
			}
		}
		m := r.holds(t)
		for n := range left[r.file] {
			if _, refuted := m.check(t, n); refuted {
				delete(left[r.file], n)
			}
		}
	}
	for file, mutants := range left {
		if len(mutants) > 0 {
			t.Errorf("%s: nothing refutes %v", file, mutants)
		}
	}
	if !*full {
		return
	}
	for _, r := range long {
		r.holds(t)
	}
	for n := 12; n <= 13; n++ { // each half of mutant 11
		if states, refuted := compile(t, "owner", "TICKS=0 L=2 AHEAD=1").check(t, n); refuted {
			t.Errorf("owner: mutant %d is refuted after %d states", n, states)
		}
	}
}

// holds checks a model, which README.md has as well if it is one of the long ones, and that its bound cannot be wider.
func (r round) holds(t *testing.T) model {
	t.Helper()
	m := compile(t, r.file, r.parameters)
	begun := time.Now()
	states, refuted := m.check(t, 0)
	t.Logf("%s.pml, %s: %d states in %v", r.file, r.parameters, states, time.Since(begun).Round(time.Millisecond))
	if refuted {
		t.Errorf("%s.pml, %s: refuted after %d states", r.file, r.parameters, states)
	}
	if r.bound != "" {
		if _, refuted := compile(t, r.file, r.parameters+" "+r.bound).check(t, 0); !refuted {
			t.Errorf("%s.pml, %s: nothing refutes %s", r.file, r.parameters, r.bound)
		}
	}
	row := fmt.Sprintf("| %s.pml | %#q | %#q | %d |", r.file, r.parameters, r.bound, states)
	row = strings.ReplaceAll(row, "``", "")
	for _, l := range long {
		if l == r && !strings.Contains(read(t, "README.md"), row) {
			t.Errorf("README.md does not have %s", row)
		}
	}
	return m
}

var codeLink = regexp.MustCompile("\\[`(?:(\\w+)\\.)?(\\w+)`\\]\\(([^)]+\\.go)\\)")

// TestModelsNameTheCode: what README.md names is in the files that it links to.
func TestModelsNameTheCode(t *testing.T) {
	t.Parallel()
	links := codeLink.FindAllStringSubmatch(read(t, "README.md"), -1)
	for _, l := range links {
		receiver, name, file := l[1], l[2], l[3]
		want := `(?m)^func (\([^)]*\b` + receiver + `(\[[^)]*)?\) )?` + name + `\b|^\t` + name + `\(`
		if !regexp.MustCompile(want).MatchString(read(t, file)) {
			t.Errorf("%s.%s is not in %s", receiver, name, file)
		}
	}
	if len(links) < 20 {
		t.Errorf("%d names", len(links))
	}
}
