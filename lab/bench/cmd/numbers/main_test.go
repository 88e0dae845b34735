package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/lab/bench"
)

// call runs the command with some arguments.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// fast measures nothing worth knowing.
var fast = []string{"--time", "50us", "--count", "1"}

func TestMisuse(t *testing.T) {
	for _, c := range []struct{ arg, says string }{
		{"--time=0s", "--time is 0s: must be from 1us to 1m"},
		{"--time=soon", "invalid value"},
		{"--count=0", "--count is 0: must be from 1 to 1000"},
		{"--wall=1ns", "--wall is 1ns: must be from 1ms to 1m"},
		{"--wall-count=-1", "--wall-count is -1: must be"},
		{"--shrink=0", "--shrink is 0: must be from 1 to 1000"},
		{"--shrink=2", "must come with --rows or --out"},
		{"--rows=(", "must be a regular expression"},
		{"--rows=no such row", "must match one of\n  allow, always full\n"},
		{"--redis=1us", "--redis is 1µs: must be from 1ms to 1m"},
		{"--redis-count=0", "--redis-count is 0: must be from 1 to 1000"},
		{"--durable=1us", "--durable is 1µs: must be from 1ms to 1m"},
		{"--durable-count=0", "--durable-count is 0: must be from 1 to 1000"},
		{"--wire=1ms", "--wire is 1ms: must be from 10ms to 1m"},
		{"--wire-count=0", "--wire-count is 0: must be from 1 to 1000"},
		{"--no-such-flag", "not defined"},
		{"argument", `argument "argument": there must be none`},
	} {
		code, stdout, stderr := call(t, c.arg)
		if code != exitMisuse || stdout != "" || !strings.Contains(stderr, c.says) {
			t.Errorf("%s: exit code %d, standard output %q, standard error\n%swant it to say %q",
				c.arg, code, stdout, stderr, c.says)
		}
	}
	if code, _, stderr := call(t, "-h"); code != 0 || !strings.Contains(stderr, "-rows") {
		t.Errorf("-h: exit code %d\n%s", code, stderr)
	}
}

func TestTableAndDocument(t *testing.T) {
	out := filepath.Join(t.TempDir(), "benchmarks.md")
	code, stdout, stderr := call(t, append(fast, "--rows", "^refuse$", "--out", out)...)
	if code != 0 || !strings.Contains(stdout, "clock+load") || !strings.Contains(stderr, "measuring refuse\n") {
		t.Fatalf("exit code %d\n%s\n%s", code, stdout, stderr)
	}
	document, err := os.ReadFile(out)
	if err != nil || !bytes.Contains(document, []byte("| refuse | 1 | clock+CAS |")) {
		t.Errorf("the document: %v\n%s", err, document)
	}
}

// TestPartsAreNotTheDocument measures one row, which must not take the place of the whole document.
func TestPartsAreNotTheDocument(t *testing.T) {
	t.Chdir(t.TempDir())
	if code, _, stderr := call(t, append(fast, "--rows", "^refuse$")...); code != 0 || strings.Contains(stderr, "wrote") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	if code, _, stderr := call(t, fast...); code != exitMisuse || !strings.Contains(stderr, "not in the repository") {
		t.Errorf("outside of the repository: exit code %d\n%s", code, stderr)
	}
}

func TestJSON(t *testing.T) {
	code, stdout, stderr := call(t, append(fast, "--rows", "^TryAcquire$", "--json")...)
	var r bench.Report
	if err := json.Unmarshal([]byte(stdout), &r); code != 0 || err != nil {
		t.Fatalf("exit code %d, %v\n%s\n%s", code, err, stdout, stderr)
	}
	if len(r.Rows) != 1 || r.Rows[0].Name != "TryAcquire" || r.Rows[0].Ours.Nanos <= 0 || r.Whole {
		t.Errorf("got %+v", r)
	}
}

// interrupter is standard error that interrupts the run when a text is written to it.
type interrupter struct {
	bytes.Buffer

	at     string
	cancel context.CancelFunc
}

func (i *interrupter) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(i.at)) {
		i.cancel()
	}
	return i.Buffer.Write(p)
}

// TestInterrupt ends a run in its second row: the first is printed, and no document is written.
func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	document := filepath.Join(t.TempDir(), "benchmarks.md")
	errs := &interrupter{at: "measuring TryAcquire\n", cancel: cancel}
	var out bytes.Buffer
	code := run(ctx, append(fast, "--rows", "^(refuse|TryAcquire)$", "--out", document), &out, errs)
	if code != exitFailed || !strings.Contains(out.String(), "refuse") || !strings.Contains(errs.String(), "canceled") {
		t.Errorf("exit code %d\n%s\n%s", code, out.String(), errs.String())
	}
	if strings.Contains(out.String(), "TryAcquire") {
		t.Errorf("a row that was not measured is printed:\n%s", out.String())
	}
	if _, err := os.Stat(document); !os.IsNotExist(err) {
		t.Errorf("a document was written of a part: %v", err)
	}
}
