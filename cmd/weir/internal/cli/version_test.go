package cli_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/cli"
)

// broken is an output that cannot be written to.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// TestVersionThatCannotBeWritten is a failure, also where only a script sees it.
func TestVersionThatCannotBeWritten(t *testing.T) {
	var stderr bytes.Buffer
	status := cli.Main([]string{"version"}, strings.NewReader(""), broken{}, &stderr)
	if want := "weir: no space left\n"; status != 1 || stderr.String() != want {
		t.Errorf("status %d, %q, want 1 and %q", status, stderr.String(), want)
	}
}

// TestResultThatCannotBeWritten is a failure of each command that reads files alone, and of the help: a script that keeps what
// they print must not take an empty file for success.
func TestResultThatCannotBeWritten(t *testing.T) {
	const examples = "../../../../examples/"
	for _, args := range [][]string{
		{"help"},
		{"help", "serve"},
		{"replay", "--help"},
		{"config"},
		{"config", "check", examples + "weir.yaml"},
		{"config", "check", examples + "weir.yaml", examples + "none.yaml"},
		{"config", "check", examples + "weir.yaml", "--json"},
		{"config", "explain", examples + "weir.yaml"},
		{"config", "explain", examples + "weir.yaml", "--request", "GET /"},
		{"config", "schema"},
		{"test", examples + "weir_test.yaml"},
		{"test", examples + "weir_test.yaml", "--json"},
		{"replay", examples + "access.log"},
	} {
		var stderr bytes.Buffer
		status := cli.Main(args, strings.NewReader(""), broken{}, &stderr)
		if status != 1 || !strings.HasSuffix(stderr.String(), "no space left\n") {
			t.Errorf("%q: status %d, %q, want 1 and why", args, status, stderr.String())
		}
	}
}
