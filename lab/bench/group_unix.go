//go:build unix

package bench

import (
	"os/exec"
	"syscall"
)

// ownGroup has a program run in a process group of its own, so that an interrupt of the terminal does not reach it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
