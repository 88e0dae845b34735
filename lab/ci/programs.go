package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
)

// programs are the tests of packages, each built as a program.
type programs struct {
	directory string
	builds    int
	of        map[string]string // the path of a package -> that of its program, which is not there if it does not build
}

func newPrograms() (*programs, error) {
	directory, err := os.MkdirTemp("", "weir-tests-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the programs: %w", err)
	}

	return &programs{directory: directory, of: map[string]string{}}, nil
}

func (p *programs) remove() { _ = os.RemoveAll(p.directory) }

// build builds the tests of packages of a module by one go command, which reads the module once and has all processors. It takes
// one more for packages whose paths end alike, as their programs have one name. Like go test, it leaves out what only debuggers
// need. It writes why one was not built.
func (p *programs) build(ctx context.Context, out io.Writer, module string, packages []string) {
	for left := packages; len(left) > 0; {
		directory := filepath.Join(p.directory, strconv.Itoa(p.builds))
		p.builds++

		args := []string{goTest, noVet, "-c", "-ldflags=-s -w", "-o=" + directory + string(filepath.Separator)}
		names := map[string]bool{}

		var later []string

		for _, pkg := range left {
			name := path.Base(pkg)
			if names[name] {
				later = append(later, pkg)

				continue
			}

			names[name] = true
			p.of[pkg] = filepath.Join(directory, name+".test")
			args = append(args, pkg)
		}

		var said bytes.Buffer

		cmd := goCommand(ctx, module, args)
		cmd.Stdout, cmd.Stderr = &said, &said

		if err := cmd.Run(); err != nil {
			fmt.Fprintf(out, "FAIL  build the tests of %s: %v\n%s", module, err, said.String())
		}

		left = later
	}
}
