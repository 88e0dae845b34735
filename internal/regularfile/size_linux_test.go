package regularfile

import (
	"errors"
	"testing"
)

// TestFileThatTellsNoSize: files of the kernel say that they are empty, and are read up to the bound all the same.
func TestFileThatTellsNoSize(t *testing.T) {
	const path = "/proc/self/status"
	if b, err := Read(path, 1<<20); err != nil || len(b) == 0 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if b, err := Read(path, 10); b != nil || !errors.Is(err, ErrTooLong) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}
