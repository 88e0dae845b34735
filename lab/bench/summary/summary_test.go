package summary_test

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/lab/bench/summary"
)

// contents reads a file of docs.
func contents(t *testing.T, names ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "..", "docs"}, names...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestSummaryIsCurrent makes docs/benchmarks.md and its pictures anew of the raw tables.
func TestSummaryIsCurrent(t *testing.T) {
	raw, page := contents(t, "benchmarks", "raw.md"), contents(t, "benchmarks.md")
	if again, err := summary.Page(page, raw); err != nil || again != page {
		t.Errorf("docs/benchmarks.md is not what docs/benchmarks/raw.md says: run go generate ./lab/bench/summary (%v)", err)
	}
	pictures, err := summary.Pictures(raw)
	if err != nil || len(pictures) != 2 {
		t.Fatalf("%d pictures, %v", len(pictures), err)
	}
	for name, picture := range pictures {
		if contents(t, "images", name) != picture {
			t.Errorf("docs/images/%s is not what docs/benchmarks/raw.md says: run go generate ./lab/bench/summary", name)
		}
		if !strings.Contains(page, "images/"+name) {
			t.Errorf("docs/benchmarks.md does not show %s", name)
		}
		d := xml.NewDecoder(strings.NewReader(picture))
		for err = nil; err == nil; {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestChangedFigure changes a figure of the raw tables, which the page must show then.
func TestChangedFigure(t *testing.T) {
	raw, page := contents(t, "benchmarks", "raw.md"), contents(t, "benchmarks.md")
	old := "| allow, always full | 1 | x/time/rate | `Limiter.Allow()` | "
	raw = strings.Replace(raw, old, old+"98765", 1)
	if changed, err := summary.Page(page, raw); err != nil || !strings.Contains(changed, "| x/time/rate | 98765") {
		t.Errorf("the figure is not on the page (%v)\n%s", err, changed)
	}
}

func TestMissingParts(t *testing.T) {
	raw, page := contents(t, "benchmarks", "raw.md"), contents(t, "benchmarks.md")
	for _, c := range []struct{ page, raw, says string }{
		{page, strings.Replace(raw, "### Every call", "### All calls", 1), `no table below "Every call"`},
		{page, strings.ReplaceAll(raw, "| tollbooth |", "| tollgate |"), `"tollbooth" is in no table`},
		{strings.Replace(page, "<!-- table: Redis -->", "", 1), raw, "table: Redis"},
	} {
		if _, err := summary.Page(c.page, c.raw); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("got %v, want it to say %s", err, c.says)
		}
	}
	raw = strings.Replace(raw, "| 256 | ulule | ", "| 256 | ulule | some", 1)
	if _, err := summary.Pictures(raw); err == nil || !strings.Contains(err.Error(), `of ulule is "some`) {
		t.Errorf("got %v", err)
	}
}
