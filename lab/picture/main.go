// Picture draws the first session of README.md as a moving picture.
//
//	picture README.md docs/images/ui-overview.png docs/images/session.svg
//
// Commands and their outputs are those of the README, which a test of cmd/weir runs. The dashboard is a picture of
// `make screenshots`.
package main

import (
	"errors"
	"fmt"
	"os"
)

var errUsage = errors.New("picture README.md DASHBOARD.png PICTURE.svg is expected")

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errUsage
	}
	text, err := os.ReadFile(args[0]) //nolint:gosec // a page that the caller names
	if err != nil {
		return fmt.Errorf("read the session: %w", err)
	}
	scenes, err := session(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	dashboard, err := os.ReadFile(args[1]) //nolint:gosec // the same
	if err != nil {
		return fmt.Errorf("read the dashboard: %w", err)
	}
	if err = os.WriteFile(args[2], []byte(draw(scenes, dashboard)), 0o644); err != nil { //nolint:gosec // all may read it
		return fmt.Errorf("write the picture: %w", err)
	}
	return nil
}
