package offline

import (
	"fmt"
	"io"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/policy"
)

// report is what --json prints.
type report struct {
	Passed  int          `json:"passed"`
	Failed  int          `json:"failed"`
	Skipped int          `json:"skipped"`
	Files   []fileReport `json:"files"`
}

func (r *report) add(f *fileReport) {
	r.Passed += f.Passed
	r.Failed += f.Failed
	r.Skipped += f.Skipped
	r.Files = append(r.Files, *f)
}

// fileReport is what became of the tests of a file. Skipped are those that --run leaves out.
type fileReport struct {
	File    string       `json:"file"`
	Config  string       `json:"config"`
	Passed  int          `json:"passed"`
	Failed  int          `json:"failed"`
	Skipped int          `json:"skipped"`
	Tests   []testReport `json:"tests"`
}

type testReport struct {
	Name     string          `json:"name"`
	Line     int             `json:"line"`
	Column   int             `json:"column"`
	Passed   bool            `json:"passed"`
	Failures []failureReport `json:"failures,omitempty"`
}

// failureReport is an expectation that was not met, and the request that shows it.
type failureReport struct {
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Step     int    `json:"step"`
	Field    string `json:"field"`
	Expected string `json:"expected"`
	Got      string `json:"got"`
	Request  string `json:"request"`
	// Number of Of is the request that is explained, which comes at that time.
	Number      int64                     `json:"number"`
	Of          int64                     `json:"of"`
	At          time.Time                 `json:"at"`
	Explanation *operator.ExplanationJSON `json:"explanation"`
}

func (r *fileReport) add(t *test, failures []failureReport) {
	one := testReport{
		Name: t.name, Line: t.place.Node.Line, Column: t.place.Node.Column, Passed: len(failures) == 0, Failures: failures,
	}
	if one.Passed {
		r.Passed++
	} else {
		r.Failed++
	}
	r.Tests = append(r.Tests, one)
}

// describe is a request in one line.
func describe(r *policy.Request) string {
	text := r.Method + " "
	if r.Host != "" {
		text += r.Host
	}
	text += r.Path
	if r.Query != "" {
		text += "?" + r.Query
	}
	if r.Client.IsValid() {
		text += " from " + r.Client.String()
	}
	return text
}

// print writes what failed, in verbose mode all tests, and a line for the file.
func (r *fileReport) print(w io.Writer, out terminal.Output, verbose bool) {
	for i := range r.Tests {
		t := &r.Tests[i]
		switch {
		case !t.Passed:
			fmt.Fprintf(w, "%s  %s\n", out.Red("FAIL"), out.Bold(t.Name))
			first := 0 // of a step
			for j := range t.Failures {
				t.Failures[j].write(w, out, r.File)
				if j+1 == len(t.Failures) || t.Failures[j+1].Step != t.Failures[j].Step {
					t.Failures[first].explain(w, out)
					first = j + 1
				}
			}
		case verbose:
			fmt.Fprintf(w, "ok    %s\n", t.Name)
		}
	}
	skipped := ""
	if r.Skipped > 0 {
		skipped = fmt.Sprintf(", %d left out", r.Skipped)
	}
	if r.Failed > 0 {
		fmt.Fprintf(w, "%s  %s: %d of %s failed%s\n", out.Red("FAIL"), r.File, r.Failed,
			terminal.Plural(r.Passed+r.Failed, "test", "tests"), skipped)
		return
	}
	fmt.Fprintf(w, "ok    %s: %s%s\n", r.File, terminal.Plural(r.Passed, "test", "tests"), skipped)
}

func (f *failureReport) write(w io.Writer, out terminal.Output, file string) {
	fmt.Fprintf(w, "  %s step %d: %s: expected %s, got %s\n", out.Bold(fmt.Sprintf("%s:%d:%d:", file, f.Line, f.Column)),
		f.Step, f.Field, f.Expected, out.Red(f.Got))
}

// mostRules is how many rules are listed with those that do not match.
const mostRules = 20

// explain tells why the request was answered as it was.
func (f *failureReport) explain(w io.Writer, out terminal.Output) {
	which := ""
	if f.Of > 1 {
		which = fmt.Sprintf(", request %d of %d,", f.Number, f.Of)
	}
	fmt.Fprintf(w, "    %s%s at %s:\n", f.Request, which, f.At.Format(time.RFC3339Nano))
	operator.WriteExplanation(w, out, f.Explanation, "      ", len(f.Explanation.Rules) <= mostRules, time.Time{})
}
