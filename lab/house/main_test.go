//go:build !race

package house_test

import (
	"fmt"
	"os"
	"testing"
)

// TestMain has the tests run at the top of the repository, so that they name files as its pages do.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
