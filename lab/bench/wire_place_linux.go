package bench

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// wirePlaces are two processors that this process may use, of two cores if it can be. why tells why there are none.
func wirePlaces() (p wirePlace, why string) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return p, fmt.Sprintf("the system does not tell which processors this process may use: %v", err)
	}
	var all []int
	for i := 0; len(all) < allowed.Count(); i++ {
		if allowed.IsSet(i) {
			all = append(all, i)
		}
	}
	if len(all) < 2 { //nolint:mnd // one for each side
		return p, "server and load generator need a processor each, and there is only one"
	}
	p = wirePlace{server: all[len(all)-1], client: all[0], shared: true}
	for _, i := range slices.Backward(all[1:]) {
		if !sameCore(i, p.client) {
			return wirePlace{server: i, client: p.client}, ""
		}
	}
	return p, ""
}

// sameCore reports whether two processors are known to be threads of one core.
func sameCore(a, b int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", a))
	if err != nil {
		return false
	}
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), ",") {
		first, last, isRange := strings.Cut(part, "-")
		low, err := strconv.Atoi(first)
		if err != nil {
			continue
		}
		high := low
		if isRange {
			if high, err = strconv.Atoi(last); err != nil {
				continue
			}
		}
		if low <= b && b <= high {
			return true
		}
	}
	return false
}

// startOn starts a program that may use one processor only: it inherits that from the thread that starts it.
func startOn(cmd *exec.Cmd, processor int) (err error) {
	runtime.LockOSThread()
	free := true
	defer func() {
		if free {
			runtime.UnlockOSThread() // a thread that has one processor only is used for nothing else, and ends with its goroutine
		}
	}()
	var before, one unix.CPUSet
	if err = unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("sched_getaffinity: %w", err)
	}
	one.Set(processor)
	if err = unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("sched_setaffinity: %w", err)
	}
	err = cmd.Start()
	if again := unix.SchedSetaffinity(0, &before); again != nil {
		free, err = false, errors.Join(err, fmt.Errorf("sched_setaffinity: %w", again))
	}
	return err
}

// cpuTimeOf is the CPU time that a process has used, in user mode and in the kernel.
func cpuTimeOf(process int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED: the clock of a process is its number, inverted, and that
	var t unix.Timespec
	clock := int32(^process<<3 | scheduled)
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("bench: the CPU time of process %d: %w", process, err)
	}
	return time.Duration(t.Nano()), nil
}

// residentOf is how many bytes of memory a process has.
func residentOf(process int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", process))
	if err != nil {
		return 0, fmt.Errorf("bench: the memory of process %d: %w", process, err)
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 { //nolint:mnd // the second one is what is resident
		return 0, fmt.Errorf("bench: the memory of process %d: statm says %q", process, text)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("bench: the memory of process %d: statm says %q", process, text)
	}
	return pages * int64(os.Getpagesize()), nil
}
