package cli

import (
	"bytes"
	"fmt"
	"io"

	"github.com/weirhq/weir/cmd/weir/internal/reference"
)

// ManPages returns the manual pages by the names of their files. They are the same on every machine.
func ManPages() map[string]string { return reference.ManPages(newRoot()) }

// Completions returns the scripts that complete command lines, by the names that shells look for.
func Completions() (map[string]string, error) {
	root := newRoot()
	scripts := make(map[string]string)
	for name, write := range map[string]func(io.Writer) error{
		"weir.bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"_weir":     root.GenZshCompletion,
		"weir.fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
		"weir.ps1":  root.GenPowerShellCompletionWithDesc,
	} {
		var script bytes.Buffer
		if err := write(&script); err != nil {
			return nil, fmt.Errorf("weir: %s: %w", name, err)
		}
		scripts[name] = script.String()
	}
	return scripts, nil
}
