package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

// build is what the program knows of how it was built.
type build struct {
	version  string // of the module, or "(devel)"
	revision string // of the source, "" if unknown
	modified bool   // the source was changed since
	time     string // of the revision
}

func version() build {
	b := build{version: "(unknown)"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.version = info.Main.Version
	if b.version == "" {
		b.version = "(devel)"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.revision = s.Value
		case "vcs.time":
			b.time = s.Value
		case "vcs.modified":
			b.modified = s.Value == "true"
		}
	}
	return b
}

// short is one line: "weir v1.2.3".
func (b build) short() string { return "weir " + b.version }

func (b build) String() string {
	text := b.short() + "\n"
	if b.revision != "" {
		state := ""
		if b.modified {
			state = ", with local changes"
		}
		text += fmt.Sprintf("revision %s of %s%s\n", b.revision, b.time, state)
	}
	return text + fmt.Sprintf("%s %s/%s\n", strings.Replace(runtime.Version(), "go", "go ", 1), runtime.GOOS, runtime.GOARCH)
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `version prints the version of the program, the revision of its source where the
build has recorded it, and the version of Go that built it. "weir --version"
prints the first line alone.`,
		Example: `  weir version
  weir --version`,
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return printText(cmd, version().String()) },
	}
}

func printText(cmd *cobra.Command, text string) error {
	if _, err := io.WriteString(cmd.OutOrStdout(), text); err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	return nil
}
