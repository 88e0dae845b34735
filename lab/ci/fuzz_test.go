package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestLostRace(t *testing.T) {
	progress := "fuzz: elapsed: 3s, execs: 245699 (81873/sec), new interesting: 0 (total: 1)\n"

	cases := []struct {
		name string
		said string
		want bool
	}{
		{
			name: "the time ended while a worker was busy",
			said: progress + "--- FAIL: FuzzA (3.01s)\n    context deadline exceeded\n" +
				"FAIL\nexit status 1\nFAIL\tx/d\t3.02s\n",
			want: true,
		},
		{
			name: "a failing input was found",
			said: progress + "--- FAIL: FuzzA (0.01s)\n    --- FAIL: FuzzA (0.00s)\n" +
				"        a_test.go:9: context deadline exceeded\n    \n" +
				"    Failing input written to testdata/fuzz/FuzzA/1\nFAIL\nexit status 1\nFAIL\tx/d\t0.02s\n",
			want: false,
		},
		{
			name: "the target says that a deadline has passed, and more",
			said: "--- FAIL: FuzzA (0.01s)\n    context deadline exceeded\n    a_test.go:9: 1 != 2\nFAIL\n",
			want: false,
		},
		{
			name: "something else failed",
			said: progress + "PASS\nexit status 3\nFAIL\tx/d\t3.02s\n",
			want: false,
		},
		{name: "nothing was said", said: "", want: false},
	}

	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := lostRace(c.said); got != c.want {
				t.Errorf("lostRace = %t, want %t for:\n%s", got, c.want, c.said)
			}
		})
	}
}

func TestRunFuzz(t *testing.T) {
	// Seeds run before the fuzzer changes anything, so these targets show what they are made for at once.
	source := "package a\n\nimport \"testing\"\n\n" +
		"func FuzzGood(f *testing.F) { f.Add(1); f.Fuzz(func(t *testing.T, n int) {}) }\n"
	bad := "\nfunc FuzzBad(f *testing.F) { f.Add(7); f.Fuzz(func(t *testing.T, n int) { t.Errorf(\"got %d\", n) }) }\n"

	const inputs = "1000x" // a time could end before the first

	cases := []struct {
		name  string
		files map[string]string
		says  []string
		want  error
	}{
		{
			name:  "a target holds",
			files: map[string]string{"a_test.go": source},
			says:  []string{"ok    example.com/m FuzzGood", "execs: 1000 "},
		},
		{
			name:  "a target fails and the next one still runs",
			files: map[string]string{"a_test.go": strings.Replace(source, "func ", bad+"\nfunc ", 1)},
			says:  []string{"FAIL  example.com/m FuzzBad", "got 7", "ok    example.com/m FuzzGood"},
			want:  errFailed,
		},
		{
			name:  "a package with a target does not build",
			files: map[string]string{"a_test.go": source, "b/b_test.go": source + "\nfunc f() { missing() }\n"},
			says:  []string{"undefined: missing", "ok    example.com/m FuzzGood"},
			want:  errFailed,
		},
		{
			name:  "there is no target",
			files: map[string]string{"a.go": "package a\n"},
			want:  errNoFuzzTargets,
		},
	}

	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer

			err := runFuzz(t.Context(), &out, inputs, []string{module(t, c.files)})
			if !errors.Is(err, c.want) || (err != nil) != (c.want != nil) {
				t.Errorf("error %v, want %v", err, c.want)
			}

			for _, want := range c.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is missing in:\n%s", want, out.String())
				}
			}
		})
	}
}
