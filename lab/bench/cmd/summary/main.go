// Command summary writes the tables of benchmarks.md and its pictures, of benchmarks/raw.md, in the directory of the
// documentation that it is given.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/weirhq/weir/lab/bench/summary"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "weir: summary: give the directory of the documentation")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "weir: summary: %v\n", err)
		os.Exit(1)
	}
}

func write(docs string) error {
	name := filepath.Join(docs, "benchmarks.md")
	raw, err := os.ReadFile(filepath.Join(docs, "benchmarks", "raw.md")) //nolint:gosec // the directory is given
	if err != nil {
		return fmt.Errorf("read the raw tables: %w", err)
	}
	old, err := os.ReadFile(name) //nolint:gosec // the same
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	files, err := summary.Pictures(string(raw))
	if err != nil {
		return err
	}
	page, err := summary.Page(string(old), string(raw))
	if err != nil {
		return err
	}
	for file, picture := range files {
		image := filepath.Join(docs, "images", file)
		if err := os.WriteFile(image, []byte(picture), 0o644); err != nil { //nolint:gosec // a picture is for all
			return fmt.Errorf("write a picture: %w", err)
		}
	}
	if err := os.WriteFile(name, []byte(page), 0o644); err != nil { //nolint:gosec // a page that all may read
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}
