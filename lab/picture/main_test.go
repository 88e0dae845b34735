package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestPictureIsCurrent draws the session of the README again, and compares it with the picture that the README shows.
func TestPictureIsCurrent(t *testing.T) {
	drawn := filepath.Join(t.TempDir(), "session.svg")
	if err := run([]string{"../../README.md", "../../docs/images/ui-overview.png", drawn}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(drawn)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("../../docs/images/session.svg")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/images/session.svg is not the session of the README with the dashboard of now: run make picture")
	}
	for d := xml.NewDecoder(bytes.NewReader(got)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the picture is not XML: %v", err)
		}
	}
}

// TestPictureNeedsEachCommand draws nothing of a page without a session, or with another number of commands.
func TestPictureNeedsEachCommand(t *testing.T) {
	for _, page := range []string{"", "# Page\n\n```console\n$ one\n1\n```\n"} {
		path := filepath.Join(t.TempDir(), "page.md")
		if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := run([]string{path, path, path + ".svg"}); !errors.Is(err, errSession) {
			t.Errorf("%q: %v", page, err)
		}
	}
	if err := run(nil); !errors.Is(err, errUsage) {
		t.Errorf("no arguments: %v", err)
	}
}
