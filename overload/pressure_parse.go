package overload

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The formats are those of the kernel's documentation, Documentation/admin-guide/cgroup-v2.rst, scheduler/sched-bwc.rst and
// accounting/psi.rst. What does not follow them is an error: better no pressure than a wrong one.

// parseCPUMax reads cpu.max, "200000 100000" or "max 100000", as a number of processors, which is infinite for max.
func parseCPUMax(text string) (float64, error) {
	fields := strings.Fields(text)
	if len(fields) != 2 {
		return 0, fmt.Errorf("weir: cpu.max is %.80q: must be a quota and a period", text)
	}
	period, err := parseCount("cpu.max", fields[1])
	if err != nil {
		return 0, err
	}
	if fields[0] == "max" {
		return math.Inf(1), nil
	}
	quota, err := parseCount("cpu.max", fields[0])
	if err != nil {
		return 0, err
	}
	return processors(quota, period)
}

// parseCFS reads cpu.cfs_quota_us, where -1 means none, and cpu.cfs_period_us.
func parseCFS(quota, period string) (float64, error) {
	if strings.TrimSpace(quota) == "-1" {
		return math.Inf(1), nil
	}
	q, err := parseCount("cpu.cfs_quota_us", strings.TrimSpace(quota))
	if err != nil {
		return 0, err
	}
	p, err := parseCount("cpu.cfs_period_us", strings.TrimSpace(period))
	if err != nil {
		return 0, err
	}
	return processors(q, p)
}

func processors(quota, period uint64) (float64, error) {
	if quota == 0 || period == 0 {
		return 0, fmt.Errorf("weir: quota of %d us in %d us: both must be above 0", quota, period)
	}
	return float64(quota) / float64(period), nil
}

// parseCount reads a count of the file name. It must fit in 63 bits.
func parseCount(name, text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("weir: %s holds %.80q: must be a number from 0 to 2^63-1", name, text)
	}
	return n, nil
}

// statField reads the field of a file of lines "name value".
func statField(text, field string) (uint64, error) {
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == field {
			return parseCount(field, value)
		}
	}
	return 0, ErrNoPressure
}

// stallTotal reads the total of some of a pressure file, "some avg10=0.00 avg60=0.00 avg300=0.00 total=0", in nanoseconds.
func stallTotal(text string) (uint64, error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "some" {
			continue
		}
		for _, f := range fields[1:] {
			if total, ok := strings.CutPrefix(f, "total="); ok {
				return microseconds(parseCount("total", total))
			}
		}
	}
	return 0, fmt.Errorf("weir: cpu.pressure holds %.80q: must hold some ... total=", text)
}

// microseconds is us in nanoseconds.
func microseconds(us uint64, err error) (uint64, error) {
	if err == nil && us > math.MaxInt64/1000 {
		return 0, fmt.Errorf("weir: %d us is past the range of time", us)
	}
	return us * 1000, err
}
