// Command generate writes the pages of docs/reference into a directory, and removes those there of commands that are gone.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/weirhq/weir/cmd/weir/internal/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: generate DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "weir:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // it is documentation, for all to read
		return err
	}
	pages := cli.Reference()
	there, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return err
	}
	for _, path := range there {
		if _, ok := pages[filepath.Base(path)]; !ok {
			if err := os.Remove(path); err != nil { //nolint:gosec // whoever calls the command says where
				return err
			}
		}
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // likewise
			return err
		}
	}
	return nil
}
