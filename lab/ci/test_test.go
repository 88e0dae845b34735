package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// module writes a module with the given files to a new directory and returns it.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	t.Setenv("GOWORK", "off")

	dir := t.TempDir()

	files["go.mod"] = "module example.com/m\n\ngo 1.26\n"

	for name, text := range files {
		path := filepath.Join(dir, name)

		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return dir
}

// lastLine is the last line of what a command said.
func lastLine(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")

	return lines[len(lines)-1]
}

func TestRunTestsCounts(t *testing.T) {
	good := "package a\n\nimport \"testing\"\n\n" +
		"func TestOne(t *testing.T) {}\n\n" +
		"func TestTwo(t *testing.T) { t.Run(\"x/y\", func(t *testing.T) {}); t.Run(\"z\", func(t *testing.T) {}) }\n"

	cases := []struct {
		name  string
		files map[string]string
		want  string
		says  string
	}{
		{
			name:  "all pass, and only leaves count",
			files: map[string]string{"a_test.go": good},
			want:  "3 passed, 0 failed",
		},
		{
			name: "a subtest fails",
			files: map[string]string{
				"a_test.go": good + "\nfunc TestBad(t *testing.T) { t.Run(\"s\", func(t *testing.T) { t.Error(\"wrong\") }) }\n",
			},
			want: "3 passed, 1 failed",
			says: "wrong",
		},
		{
			name: "a test fails by itself though its subtests pass",
			files: map[string]string{
				"a_test.go": good + "\nfunc TestBad(t *testing.T) { t.Run(\"s\", func(t *testing.T) {}); t.Error(\"own\") }\n",
			},
			want: "4 passed, 1 failed",
			says: "own",
		},
		{
			name: "a test is skipped",
			files: map[string]string{
				"a_test.go": good + "\nfunc TestBad(t *testing.T) { t.Skip(\"not today\") }\n",
			},
			want: "3 passed, 1 failed",
			says: "TestBad: skip",
		},
		{
			name: "a package does not build",
			files: map[string]string{
				"a_test.go":   good,
				"b/b_test.go": "package b\n\nfunc f() { missing() }\n",
			},
			want: "3 passed, 1 failed",
			says: "undefined: missing",
		},
		{
			name: "vet finds something in a package without tests",
			files: map[string]string{
				"a_test.go": good,
				"b/b.go":    "package b\n\nfunc F(s []int) int { s = s; return len(s) }\n",
			},
			want: "3 passed, 1 failed",
			says: "self-assignment",
		},
		{
			name: "the binary leaves early",
			files: map[string]string{
				"a_test.go": "package a\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\n" +
					"func TestMain(m *testing.M) { m.Run(); os.Exit(3) }\n\nfunc TestOne(t *testing.T) {}\n",
			},
			want: "1 passed, 1 failed",
		},
		{
			name: "a goroutine panics while a test runs",
			files: map[string]string{
				"a_test.go": "package a\n\nimport \"testing\"\n\n" +
					"func TestOne(t *testing.T) { go panic(\"boom\"); select {} }\n",
			},
			want: "0 passed, 1 failed",
			says: "boom",
		},
		{
			name:  "nothing to run",
			files: map[string]string{"a.go": "package a\n"},
			want:  "0 passed, 1 failed",
			says:  "no test ran",
		},
	}

	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer

			err := runTests(t.Context(), &out, testOptions{}, []string{module(t, c.files)})

			if said := out.String(); lastLine(said) != c.want || !strings.Contains(said, c.says) {
				t.Errorf("want %q at the end and %q somewhere in:\n%s", c.want, c.says, said)
			}

			if failed := !strings.HasSuffix(c.want, " 0 failed"); errors.Is(err, errFailed) != failed {
				t.Errorf("error %v, want a failure: %t", err, failed)
			}
		})
	}
}

func TestRunTestsLeavesOutVet(t *testing.T) {
	files := map[string]string{
		"a_test.go": "package a\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {}\n",
		"b/b.go":    "package b\n\nfunc F(s []int) int { s = s; return len(s) }\n",
	}

	var out bytes.Buffer

	err := runTests(t.Context(), &out, testOptions{noVet: true}, []string{module(t, files)})
	if err != nil || lastLine(out.String()) != "1 passed, 0 failed" || strings.Contains(out.String(), "vet") {
		t.Errorf("error %v after:\n%s", err, out.String())
	}
}

func TestRunTestsGoesOnInTheNextModule(t *testing.T) {
	var out bytes.Buffer

	source := "package a\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {}\n"
	good := module(t, map[string]string{"a_test.go": source})

	err := runTests(t.Context(), &out, testOptions{}, []string{filepath.Join(good, "missing"), good})
	if !errors.Is(err, errFailed) || lastLine(out.String()) != "1 passed, 1 failed" {
		t.Errorf("error %v after:\n%s", err, out.String())
	}
}

// TestLongestFirst: a module counts without those below it, one whose time is known comes first, and one that is not there last.
func TestLongestFirst(t *testing.T) {
	small := module(t, map[string]string{"a_test.go": "package a\n", "a.go": "package a\n" + strings.Repeat("\n", 1000)})
	large := module(t, map[string]string{"b/a_test.go": "package b\n\n// It is longer.\n"})

	below := filepath.Join(small, "below")
	if err := os.Rename(module(t, map[string]string{"a_test.go": "package a\n" + strings.Repeat("\n", 1000)}), below); err != nil {
		t.Fatal(err)
	}

	missing := filepath.Join(small, "missing")
	want := []string{"cmd/weir", "durable/etcd", below, large, small, missing}

	if got := longestFirst([]string{missing, small, "durable/etcd", large, below, "cmd/weir"}); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestRunTestsRunsHeavyTestsAgain(t *testing.T) {
	source := "package a\n\nimport \"testing\"\n\nfunc TestOther(t *testing.T) {}\n"
	with := module(t, map[string]string{"a_test.go": source + "\nfunc TestBucketContention(t *testing.T) {}\n"})
	without := module(t, map[string]string{"a_test.go": source})

	var out bytes.Buffer

	err := runTests(t.Context(), &out, testOptions{contention: true}, []string{with})
	if err != nil || lastLine(out.String()) != "3 passed, 0 failed" {
		t.Errorf("error %v after:\n%s", err, out.String())
	}

	out.Reset()

	err = runTests(t.Context(), &out, testOptions{contention: true}, []string{without})
	if !errors.Is(err, errFailed) || lastLine(out.String()) != "1 passed, 1 failed" {
		t.Errorf("no contention test: error %v after:\n%s", err, out.String())
	}
}

func TestRunRefusesWhatMakesNoSense(t *testing.T) {
	for _, args := range [][]string{
		nil, {"bake", "."}, {"test"}, {"test", "-fast", "."}, {"fuzz"}, {"fuzz", "-time", "x", "."},
	} {
		if err := run(t.Context(), t.Output(), args); !errors.Is(err, errUsage) {
			t.Errorf("ci %q: error %v, want %v", args, err, errUsage)
		}
	}
}

// TestFilesIn: go tells tests by GOTMPDIR where files are, unless it is hidden.
func TestFilesIn(t *testing.T) {
	t.Setenv("GOTMPDIR", t.TempDir())

	directory := filepath.Join(t.TempDir(), "of tests")
	if err := os.Mkdir(directory, 0o700); err != nil {
		t.Fatal(err)
	}

	source := "package a\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) { t.Error(\"files are in \" + t.TempDir()) }\n"

	var out bytes.Buffer

	testModule(t.Context(), &out, module(t, map[string]string{"a_test.go": source}),
		execBy(filesIn(directory)))

	if want := "files are in " + directory + string(filepath.Separator); !strings.Contains(out.String(), want) {
		t.Errorf("want %q in:\n%s", want, out.String())
	}
}

// TestRoundsBuildEveryPackage: two packages whose paths end alike have programs of their own, and one that does not build fails.
func TestRoundsBuildEveryPackage(t *testing.T) {
	source := "//go:build !race\n\npackage a\n\nimport \"testing\"\n\nfunc Test%(t *testing.T) { t.Log(t.Name()) }\n"
	files := map[string]string{
		"a_test.go":         "package a\n\nimport \"testing\"\n\nfunc TestAlways(t *testing.T) {}\n",
		"one/a/a_test.go":   strings.Replace(source, "%", "One", 1),
		"two/a/a_test.go":   strings.Replace(source, "%", "Two", 1),
		"three/a/a_test.go": strings.Replace(source, "%", "Three", 1) + "\nvar _ = missing\n",
	}

	var out bytes.Buffer

	err := runTests(t.Context(), &out, testOptions{race: true}, []string{module(t, files)})
	if !errors.Is(err, errFailed) || lastLine(out.String()) != "3 passed, 1 failed" ||
		!strings.Contains(out.String(), "undefined: missing") || !strings.Contains(out.String(), "FAIL  example.com/m/three/a") {
		t.Errorf("error %v after:\n%s", err, out.String())
	}
}

func TestRunTestsRunsWhatIsNotBuiltWithTheRaceDetector(t *testing.T) {
	source := func(constraint, name string) string {
		return constraint + "\n\npackage a\n\nimport \"testing\"\n\nfunc " + name + "(t *testing.T) {}\n"
	}
	files := map[string]string{
		"a_test.go":   source("// Always.", "TestAlways"),
		"r_test.go":   source("//go:build race", "TestWithRace"),
		"n_test.go":   source("//go:build !race && !never", "TestWithoutRace"),
		"b/b_test.go": source("//go:build !race", "TestAlways"),
		"m/m_test.go": source("//go:build !race", "TestAMillion"),
		"c/c_test.go": source("//go:build never", "TestNever"),
	}

	files["n_test.go"] = strings.Replace(files["n_test.go"], "{}", "{ t.Error(\"wrong\") }", 1)
	files["on_test.go"] = "//go:build race\n\npackage a\n\nvar race = struct{ Enabled bool }{true}\n"
	files["off_test.go"] = "//go:build !race\n\npackage a\n\nvar race = struct{ Enabled bool }{}\n"
	files["asks_test.go"] = strings.Replace(source("// Always.", "TestAsks"), "{}", `{ if !race.Enabled { t.Error("asked") } }`, 1)

	var out bytes.Buffer

	err := runTests(t.Context(), &out, testOptions{race: true}, []string{module(t, files)})
	if !errors.Is(err, errFailed) || lastLine(out.String()) != "4 passed, 2 failed" || !strings.Contains(out.String(), "wrong") ||
		!strings.Contains(out.String(), "asked") {
		t.Errorf("error %v after:\n%s", err, out.String())
	}
}
