//go:build !linux

package bench

import (
	"errors"
	"os/exec"
	"time"
)

// wirePlaces tells why there are none.
func wirePlaces() (p wirePlace, why string) {
	return p, "processes are given processors of their own only on Linux"
}

func startOn(*exec.Cmd, int) error            { return errors.ErrUnsupported }
func cpuTimeOf(int) (time.Duration, error)    { return 0, errors.ErrUnsupported }
func residentOf(int) (bytes int64, err error) { return 0, errors.ErrUnsupported }
