package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// event is one line of `go test -json`. The names are those of go test.
//
//nolint:tagliatelle // see above
type event struct {
	Action      string  `json:"Action"`
	Package     string  `json:"Package"`
	Test        string  `json:"Test"`
	Output      string  `json:"Output"`
	Elapsed     float64 `json:"Elapsed"`
	ImportPath  string  `json:"ImportPath"`
	FailedBuild string  `json:"FailedBuild"`
}

// What an event says. A test has one of the last three as its result, a package too.
const (
	buildOutput = "build-output"
	buildFail   = "build-fail"
	output      = "output"
	passed      = "pass"
	failed      = "fail"
	skipped     = "skip"
)

// tally counts what `go test -json` reports and writes a line for each package, with the output of what failed.
//
// What counts is a leaf: a test, example or seed of a fuzz target that has no subtests. A test that failed by itself
// though all its subtests passed counts too, as does a package that failed without a failed test (it did not build, or
// left early). A test that never finished counts as failed, and so does a skipped one: it has shown nothing.
type tally struct {
	out      io.Writer
	passed   int
	failed   int
	packages map[string]*packageRun
	builds   map[string][]string
}

type packageRun struct {
	tests  map[string]*testRun
	output []string
}

type testRun struct {
	result   string // "" while it runs, then passed, failed or skipped
	elapsed  float64
	output   []string
	parent   bool // it has subtests
	failedIn bool // one of its subtests failed
}

func newTally(out io.Writer) *tally {
	return &tally{out: out, packages: map[string]*packageRun{}, builds: map[string][]string{}}
}

// add takes one event in the order in which go test reports them.
func (t *tally) add(e event) {
	switch e.Action {
	case buildOutput:
		t.builds[e.ImportPath] = append(t.builds[e.ImportPath], e.Output)

		return
	case buildFail:
		return
	}

	pkg := t.packages[e.Package]
	if pkg == nil {
		pkg = &packageRun{tests: map[string]*testRun{}}
		t.packages[e.Package] = pkg
	}

	if e.Test == "" {
		switch e.Action {
		case output:
			pkg.output = append(pkg.output, e.Output)
		case passed, failed, skipped:
			t.finish(e, pkg)
		}

		return
	}

	test := pkg.tests[e.Test]
	if test == nil {
		test = &testRun{}
		pkg.tests[e.Test] = test
	}

	switch e.Action {
	case output:
		test.output = append(test.output, e.Output)
	case passed:
		test.result, test.elapsed, test.output = e.Action, e.Elapsed, nil
	case failed, skipped:
		test.result, test.elapsed = e.Action, e.Elapsed
	}
}

// close counts the packages whose end was never reported as failed: go test was stopped in the midst of them.
func (t *tally) close() {
	for _, name := range slices.Sorted(maps.Keys(t.packages)) {
		t.finish(event{Action: failed, Package: name}, t.packages[name])
	}
}

// finish counts the tests of a package that has come to its end and forgets them.
func (t *tally) finish(e event, pkg *packageRun) {
	delete(t.packages, e.Package)

	names := slices.Sorted(maps.Keys(pkg.tests))
	pkg.relate(names)

	var bad []string

	good := 0

	for _, name := range names {
		test := pkg.tests[name]

		switch {
		case test.result == passed && !test.parent:
			good++
		case test.result == passed, test.parent && test.failedIn:
		default:
			bad = append(bad, name)
		}
	}

	t.passed += good
	t.failed += len(bad)

	if e.Action == failed && len(bad) == 0 {
		t.failed++
	}

	if e.Action == failed || len(bad) > 0 {
		t.report(e, pkg, names, bad)

		return
	}

	if good > 0 {
		took := time.Duration(e.Elapsed * float64(time.Second)).Round(10 * time.Millisecond)
		fmt.Fprintf(t.out, "ok    %-52s %5d passed %8s\n", e.Package, good, took)
	}
}

// relate marks the tests that have subtests. The name of a subtest may itself contain a slash, so the parent is the
// longest prefix that is a test.
func (p *packageRun) relate(names []string) {
	for _, name := range names {
		child := p.tests[name]

		for up := name; ; {
			cut := strings.LastIndexByte(up, '/')
			if cut < 0 {
				break
			}

			up = up[:cut]
			if parent := p.tests[up]; parent != nil {
				parent.parent = true
				parent.failedIn = parent.failedIn || child.result != passed
			}
		}
	}
}

// report writes what is known about a package that failed: why it did not build, what its failed tests said, and what
// it said outside any test.
func (t *tally) report(e event, pkg *packageRun, names, bad []string) {
	fmt.Fprintf(t.out, "FAIL  %s\n", e.Package)

	if e.FailedBuild != "" {
		t.write(t.builds[e.FailedBuild])
	}

	for _, name := range names {
		if test := pkg.tests[name]; test.result != passed {
			t.write(test.output)
		}
	}

	t.write(pkg.output)

	for _, name := range bad {
		said := cmp.Or(pkg.tests[name].result, "did not finish")
		fmt.Fprintf(t.out, "      %s: %s\n", name, said)
	}
}

// write copies lines of go test, without those that only say that a test starts, pauses or goes on.
func (t *tally) write(lines []string) {
	for _, line := range lines {
		if strings.HasPrefix(line, "=== ") {
			continue
		}

		fmt.Fprint(t.out, "      ", line)

		if !strings.HasSuffix(line, "\n") {
			fmt.Fprintln(t.out)
		}
	}
}
