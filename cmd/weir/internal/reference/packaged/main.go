// Command packaged writes into a directory what packages have beside the program: manual pages, completions of shells, and the
// unit of systemd with the path at which packages have the program.
package main

import (
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/cli"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: packaged UNIT DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "weir:", err)
		os.Exit(1)
	}
}

var errUnit = errors.New("the unit has no line with [Unit], or does not run /usr/local/bin/weir")

func write(unit, dir string) error {
	content, err := os.ReadFile(unit) //nolint:gosec // the caller says which
	if err != nil {
		return err
	}
	packaged, err := packagedUnit(string(content))
	if err != nil {
		return err
	}
	completions, err := cli.Completions()
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, "weir.service"), packaged); err != nil {
		return err
	}
	for name, text := range completions {
		if err := writeFile(filepath.Join(dir, "completions", name), text); err != nil {
			return err
		}
	}
	for name, text := range cli.ManPages() {
		compressed, err := compress(text)
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, "man", name+".gz"), compressed); err != nil {
			return err
		}
	}
	return nil
}

// packagedUnit is the unit without the lines that say how to install it by hand, and with the program where packages have it.
func packagedUnit(text string) (string, error) {
	const (
		first       = "[Unit]\n"
		byHand      = "ExecStart=/usr/local/bin/weir "
		fromPackage = "ExecStart=/usr/bin/weir "
	)
	_, rest, ok := strings.Cut(text, "\n"+first)
	if !ok || strings.Count(rest, byHand) != 1 {
		return "", errUnit
	}
	return first + strings.Replace(rest, byHand, fromPackage, 1), nil
}

// compress makes the same bytes of a text on every machine.
func compress(text string) (string, error) {
	var b strings.Builder
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return "", err
	}
	if _, err := w.Write([]byte(text)); err != nil {
		return "", err
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	return b.String(), nil
}

func writeFile(path, text string) error {
	//nolint:gosec // all of it is for all to read
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
}
