package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestDocumentIsUpToDate compares the page and its picture with what the command writes. Other processors than amd64 round
// products of floating-point numbers differently, so that only the form is the same.
func TestDocumentIsUpToDate(t *testing.T) {
	image := filepath.Join(t.TempDir(), "adaptive.svg")
	var stdout, stderr bytes.Buffer
	if code := run([]string{"-image", image}, &stdout, &stderr); code != 0 || stderr.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	if runtime.GOARCH != "amd64" {
		if lines := strings.Count(stdout.String(), "\n"); lines != 17 {
			t.Errorf("%d lines:\n%s", lines, stdout.String())
		}
		return
	}
	page, err := os.ReadFile("../../../../docs/adaptive.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), stdout.String()) {
		t.Errorf("docs/adaptive.md does not hold this table:\n%s", stdout.String())
	}
	want, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../../../docs/images/adaptive.svg")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/images/adaptive.svg is not what the command draws")
	}
}

func TestMisuse(t *testing.T) {
	for _, args := range [][]string{{"-speed", "1"}, {"now"}, {"-seed", "x"}} {
		var stdout, stderr bytes.Buffer
		if code := run(args, &stdout, &stderr); code != exitMisuse || stderr.Len() == 0 || stdout.Len() > 0 {
			t.Errorf("%q: exit code %d, %q", args, code, stderr.String())
		}
	}
	var stdout, stderr bytes.Buffer
	if code := run([]string{"-h"}, &stdout, &stderr); code != 0 {
		t.Errorf("-h: exit code %d", code)
	}
	if code := run([]string{"-image", filepath.Join(t.TempDir(), "no", "where.svg")}, &stdout, &stderr); code != exitFailed {
		t.Errorf("no such directory: exit code %d", code)
	}
}
