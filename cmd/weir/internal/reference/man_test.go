package reference_test

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/reference"
)

// TestManPages shows the page of a command, in which no text is read as an instruction.
func TestManPages(t *testing.T) {
	root := &cobra.Command{Use: "weir", Short: "Limit", Long: "weir limits."}
	run := &cobra.Command{
		Use: "run", Short: "Run it", Run: func(*cobra.Command, []string) {},
		Long:    "run runs it:\n\n  weir run -x\n\n.so of /etc/passwd, \\fBbold\\fP and 'quoted'.",
		Example: "  weir run --at ~/x\n  .hidden",
	}
	run.Flags().String("at", "", "where (default: here)")
	root.AddCommand(run)
	pages := reference.ManPages(root)
	const want = `.TH WEIR\-RUN 1 "" weir "weir manual"
.SH NAME
weir\-run \- Run it
.SH SYNOPSIS
.B weir run [flags]
.SH DESCRIPTION
run runs it:
.PP
.RS 2
.nf
weir run \-x
.fi
.RE
.PP
\&.so of /etc/passwd, \efBbold\efP and \(aqquoted\(aq.
.SH OPTIONS
.TP
.B \-\-at string
where (default: here)
.SH EXAMPLES
.nf
weir run \-\-at \(ti/x
\&.hidden
.fi
.SH SEE ALSO
\fBweir\fP(1)
`
	if got := pages["weir-run.1"]; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if len(pages) != 2 || !strings.HasSuffix(pages["weir.1"], ".SH SEE ALSO\n\\fBweir\\-run\\fP(1)\n") {
		t.Errorf("%q", pages)
	}
}
