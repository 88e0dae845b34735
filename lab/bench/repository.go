package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Repository is the directory of weir's go.mod, which is the current one or lies above it.
func Repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("bench: where the repository is: %w", err)
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod")) //nolint:gosec // only its first line is read, and not shown
		first, _, _ := strings.Cut(string(mod), "\n")
		if err == nil && strings.TrimSpace(first) == "module github.com/weirhq/weir" {
			return dir, nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", errors.New("bench: not in the repository of weir")
		}
		dir = above
	}
}
