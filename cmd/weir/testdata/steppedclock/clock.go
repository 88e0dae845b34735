package main

import (
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

// This file and the one beside it are put into package main by a build with an overlay (clusterclock_test.go). The wall clock of
// such a program is ahead by as many seconds as the file says that WEIR_TEST_CLOCK names, 8 bytes that a test may change at any
// time. The monotonic clock stays as it is, as it does where the clock of a machine is set.

//go:linkname vdsoClockgettimeSym runtime.vdsoClockgettimeSym
var vdsoClockgettimeSym uintptr

// original is clock_gettime of the system, and ahead where the seconds are.
var (
	original uintptr
	ahead    unsafe.Pointer
)

// address is that of stepped, which is called as a function of C.
func address() uintptr

func init() {
	path := os.Getenv("WEIR_TEST_CLOCK")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	page, err := syscall.Mmap(int(f.Fd()), 0, strconv.IntSize/8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	if vdsoClockgettimeSym == 0 {
		panic("the system has no clock that could be replaced")
	}
	ahead, original = unsafe.Pointer(&page[0]), vdsoClockgettimeSym
	vdsoClockgettimeSym = address()
}
