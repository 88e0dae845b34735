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
