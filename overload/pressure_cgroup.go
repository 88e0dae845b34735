package overload

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"strings"
)

// NewCgroupPressure returns what the control groups of Linux, version 2 or 1, report of this process and those that share its
// processor time. All sources return ErrNoPressure where there are none.
//
//   - "cgroup cpu" is the processor time that was used, of what the group may use: cpu.max and cpu.stat, or cpu.cfs_quota_us,
//     cpu.cfs_period_us and cpuacct.usage. Of the group of the process and those above it, the one with the smallest part counts.
//   - "cgroup throttling" is the share of periods in which that processor time was used up, from cpu.stat.
//   - "cgroup stall" is the share of time in which something in the group of the process waited for a processor: the total of
//     some in cpu.pressure, version 2 only.
//
// root is the root of the file system, of which proc/self/cgroup and sys/fs/cgroup are read. Of each file at most 64 KiB are
// read, and only if it is a regular one.
func NewCgroupPressure(root fs.FS) []Pressure {
	return []Pressure{
		&cgroupSource{name: "cgroup cpu", root: root, read: (*cgroupSource).use},
		&cgroupSource{name: "cgroup throttling", root: root, read: (*cgroupSource).throttling},
		&cgroupSource{name: "cgroup stall", root: root, read: (*cgroupSource).stall},
	}
}

// cgroupSource is a source that compares a counter with the last time.
type cgroupSource struct {
	name string
	root fs.FS
	read func(*cgroupSource, int64) (float64, error)

	started bool
	dir     string // where the counter was read
	done    uint64
	of      float64
}

// String implements [Pressure].
func (s *cgroupSource) String() string { return s.name }

// Pressure implements [Pressure].
func (s *cgroupSource) Pressure(now int64) (float64, error) {
	p, err := s.read(s, now)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, ErrNoPressure
	case err != nil:
		return 0, err
	}
	return p, nil
}

// share is by how much done has grown since the last call, of the growth of what it is a part of.
func (s *cgroupSource) share(dir string, done uint64, of float64) (float64, error) {
	wasDone, wasOf := s.done, s.of
	known := s.started && s.dir == dir
	s.started, s.dir, s.done, s.of = true, dir, done, of
	switch {
	case !known:
		return 0, ErrNoPressure
	case done < wasDone:
		return 0, fmt.Errorf("weir: %s: counter in %s went back from %d to %d", s.name, dir, wasDone, done)
	case of <= wasOf:
		return 0, nil
	}
	return min(float64(done-wasDone)/(of-wasOf), maxPressure), nil
}

// use is processor time in nanoseconds, by the time that has passed. The quota of this moment is taken for all of it.
func (s *cgroupSource) use(now int64) (float64, error) {
	g, err := findCgroup(s.root)
	if err != nil {
		return 0, err
	}
	dir, quota, err := g.quota(s.root)
	if err != nil {
		return 0, err
	}
	used, err := g.used(s.root, dir)
	if err != nil {
		return 0, err
	}
	p, err := s.share(dir, used, float64(now))
	return min(p/quota, maxPressure), err
}

func (s *cgroupSource) throttling(int64) (float64, error) {
	g, err := findCgroup(s.root)
	if err != nil {
		return 0, err
	}
	dir, _, err := g.quota(s.root)
	if err != nil {
		return 0, err
	}
	text, err := readBounded(s.root, path.Join(dir, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	throttled, err := statField(text, "nr_throttled")
	if err != nil {
		return 0, err
	}
	periods, err := statField(text, "nr_periods")
	if err != nil {
		return 0, err
	}
	p, err := s.share(dir, throttled, float64(periods))
	return min(p, 1), err
}

func (s *cgroupSource) stall(now int64) (float64, error) {
	g, err := findCgroup(s.root)
	if err != nil {
		return 0, err
	}
	if g.version != 2 {
		return 0, ErrNoPressure
	}
	text, err := readBounded(s.root, path.Join(g.dir, "cpu.pressure"))
	if err != nil {
		return 0, err
	}
	total, err := stallTotal(text)
	if err != nil {
		return 0, err
	}
	p, err := s.share(g.dir, total, float64(now))
	return min(p, 1), err
}

// cgroup is the group of this process, as a directory below the root of the file system.
type cgroup struct {
	version int
	mount   string
	dir     string // mount or below it
}

const cgroupMount = "sys/fs/cgroup"

// findCgroup finds the group that limits the processor time of this process.
func findCgroup(root fs.FS) (cgroup, error) {
	text, err := readBounded(root, "proc/self/cgroup")
	if err != nil {
		return cgroup{}, err
	}
	version, below, err := parseSelfCgroup(text)
	if err != nil {
		return cgroup{}, err
	}
	mounts := []string{cgroupMount}
	if version == 1 {
		mounts = []string{cgroupMount + "/cpu,cpuacct", cgroupMount + "/cpu"}
	}
	for _, mount := range mounts {
		if info, err := fs.Stat(root, mount); err != nil || !info.IsDir() {
			continue
		}
		dir := path.Join(mount, below)
		if info, err := fs.Stat(root, dir); err != nil || !info.IsDir() {
			dir = mount // the path is that of the host, and the mount that of a container
		}
		return cgroup{version, mount, dir}, nil
	}
	return cgroup{}, ErrNoPressure
}

// parseSelfCgroup reads /proc/self/cgroup: the group of the controller cpu of version 1 if there is one, otherwise that of
// version 2. below is clean and does not leave the mount.
func parseSelfCgroup(text string) (version int, below string, err error) {
	for line := range strings.Lines(text) {
		_, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		controllers, group, ok2 := strings.Cut(rest, ":")
		if !ok || !ok2 {
			return 0, "", fmt.Errorf("weir: proc/self/cgroup: line %.80q is not number:controllers:path", line)
		}
		group = strings.TrimPrefix(path.Clean("/"+group), "/")
		if controllers == "" && version == 0 {
			version, below = 2, group
		}
		for c := range strings.SplitSeq(controllers, ",") {
			if c == "cpu" {
				return 1, group, nil
			}
		}
	}
	if version == 0 {
		return 0, "", ErrNoPressure
	}
	return version, below, nil
}

// quota is how many processors may be used, in the group where that is least, of this and all above it.
func (g cgroup) quota(root fs.FS) (dir string, processors float64, err error) {
	processors = math.Inf(1)
	for at := g.dir; ; at = path.Dir(at) {
		q, err := g.quotaOf(root, at)
		switch {
		case errors.Is(err, fs.ErrNotExist): // the topmost group has no limit
		case err != nil:
			return "", 0, err
		case q < processors:
			dir, processors = at, q
		}
		if at == g.mount || !strings.HasPrefix(at, g.mount) {
			break
		}
	}
	if math.IsInf(processors, 1) {
		return "", 0, ErrNoPressure
	}
	return dir, processors, nil
}

// quotaOf is infinite if there is none.
func (g cgroup) quotaOf(root fs.FS, dir string) (float64, error) {
	if g.version == 2 {
		text, err := readBounded(root, path.Join(dir, "cpu.max"))
		if err != nil {
			return 0, err
		}
		return parseCPUMax(text)
	}
	quota, err := readBounded(root, path.Join(dir, "cpu.cfs_quota_us"))
	if err != nil {
		return 0, err
	}
	period, err := readBounded(root, path.Join(dir, "cpu.cfs_period_us"))
	if err != nil {
		return 0, err
	}
	return parseCFS(quota, period)
}

// used is the processor time that was used in dir, in nanoseconds.
func (g cgroup) used(root fs.FS, dir string) (uint64, error) {
	if g.version == 1 {
		text, err := readBounded(root, path.Join(dir, "cpuacct.usage"))
		if err != nil {
			return 0, err
		}
		return parseCount("cpuacct.usage", strings.TrimSpace(text))
	}
	text, err := readBounded(root, path.Join(dir, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	return microseconds(statField(text, "usage_usec"))
}

const maxBytes = 64 << 10

// readBounded reads a regular file of at most maxBytes.
func readBounded(root fs.FS, name string) (string, error) {
	info, err := fs.Stat(root, name) // opening a pipe might wait for ever
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("weir: %s is no regular file", name)
	}
	f, err := root.Open(name)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return "", err
	}
	if len(text) > maxBytes {
		return "", fmt.Errorf("weir: %s is longer than %d bytes", name, maxBytes)
	}
	return string(text), nil
}
