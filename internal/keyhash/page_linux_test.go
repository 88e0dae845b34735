package keyhash

import (
	"syscall"
	"testing"
	"unsafe"
)

// TestNothingBesideATextIsRead hashes texts of each length that begin and end where memory does: another read would be a fault.
func TestNothingBesideATextIsRead(t *testing.T) {
	page := syscall.Getpagesize()
	memory, err := syscall.Mmap(-1, 0, 3*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Munmap(memory); err != nil {
			t.Error(err)
		}
	}()
	for _, beside := range [][]byte{memory[:page], memory[2*page:]} {
		if err := syscall.Mprotect(beside, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	alone := memory[page : 2*page]
	for n := range 150 {
		a, b := String(string(make([]byte, n)))
		for _, at := range []int{0, page - n} {
			if x, y := String(unsafe.String(unsafe.SliceData(alone[at:]), n)); x != a || y != b {
				t.Errorf("%d bytes at %d: %x %x, want %x %x", n, at, x, y, a, b)
			}
		}
	}
}
