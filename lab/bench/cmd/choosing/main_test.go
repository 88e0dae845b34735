package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestPicturesAreUpToDate compares docs/choosing.md and its pictures with what the command writes. Other processors than amd64
// may round coordinates differently, so that only the form is the same.
func TestPicturesAreUpToDate(t *testing.T) {
	images := t.TempDir()
	var stdout, stderr bytes.Buffer
	if code := run([]string{"-images", images}, &stdout, &stderr); code != 0 || stderr.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	page, err := os.ReadFile("../../../../docs/choosing.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), stdout.String()) {
		t.Errorf("docs/choosing.md does not hold this table:\n%s", stdout.String())
	}
	drawn, err := os.ReadDir(images)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range drawn {
		if !strings.Contains(string(page), "(images/"+f.Name()+")") {
			t.Errorf("docs/choosing.md does not show %s", f.Name())
		}
		want, err := os.ReadFile(filepath.Join(images, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "images", f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) && (runtime.GOARCH == "amd64" || len(got) == 0) {
			t.Errorf("docs/images/%s is not what the command draws: run go run ./lab/bench/cmd/choosing", f.Name())
		}
	}
	if len(drawn) != 3 {
		t.Errorf("%d pictures", len(drawn))
	}
}

func TestMisuse(t *testing.T) {
	for _, args := range [][]string{{"-speed", "1"}, {"now"}} {
		var stdout, stderr bytes.Buffer
		if code := run(args, &stdout, &stderr); code != exitMisuse || stderr.Len() == 0 || stdout.Len() > 0 {
			t.Errorf("%q: exit code %d, %q", args, code, stderr.String())
		}
	}
	var stdout, stderr bytes.Buffer
	if code := run([]string{"-h"}, &stdout, &stderr); code != 0 {
		t.Errorf("-h: exit code %d", code)
	}
	if code := run([]string{"-images", filepath.Join(t.TempDir(), "no", "where")}, &stdout, &stderr); code != exitFailed {
		t.Errorf("no such directory: exit code %d", code)
	}
}
