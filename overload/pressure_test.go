package overload_test

import (
	"errors"
	"io/fs"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/overload"
)

// files is a file system of regular files.
func files(content map[string]string) fstest.MapFS {
	m := fstest.MapFS{}
	for name, text := range content {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return m
}

const (
	inV2 = "sys/fs/cgroup/shop/web/"
	inV1 = "sys/fs/cgroup/cpu,cpuacct/shop/web/"
)

func versionTwo() fstest.MapFS {
	return files(map[string]string{
		"proc/self/cgroup":            "0::/shop/web\n",
		"sys/fs/cgroup/cpu.stat":      "usage_usec 99\n",
		"sys/fs/cgroup/shop/cpu.max":  "400000 100000\n",
		"sys/fs/cgroup/shop/cpu.stat": "usage_usec 77000000\nnr_periods 7\nnr_throttled 7\n",
		inV2 + "cpu.max":              "200000 100000\n",
		inV2 + "cpu.stat":             "usage_usec 5000000\nuser_usec 4000000\nsystem_usec 1000000\nnr_periods 100\nnr_throttled 10\nthrottled_usec 100\n",
		inV2 + "cpu.pressure":         "some avg10=1.00 avg60=2.00 avg300=3.00 total=1000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
	})
}

func versionOne() fstest.MapFS {
	return files(map[string]string{
		"proc/self/cgroup":                                 "12:memory:/shop/web\n4:cpu,cpuacct:/shop/web\n0::/\n",
		inV1 + "cpu.cfs_quota_us":                          "200000\n",
		inV1 + "cpu.cfs_period_us":                         "100000\n",
		inV1 + "cpuacct.usage":                             "5000000000\n",
		inV1 + "cpu.stat":                                  "nr_periods 100\nnr_throttled 10\nthrottled_time 100\n",
		"sys/fs/cgroup/cpu,cpuacct/shop/cpu.cfs_quota_us":  "-1\n",
		"sys/fs/cgroup/cpu,cpuacct/shop/cpu.cfs_period_us": "100000\n",
	})
}

// read reads a source.
func read(t *testing.T, p overload.Pressure, at time.Duration, want float64) {
	t.Helper()
	got, err := p.Pressure(int64(at))
	if err != nil || math.Abs(got-want) > 1e-9 {
		t.Errorf("%v at %v: %v, %v, want %v", p, at, got, err, want)
	}
}

func absent(t *testing.T, p overload.Pressure, at time.Duration) {
	t.Helper()
	if got, err := p.Pressure(int64(at)); !errors.Is(err, overload.ErrNoPressure) || got != 0 {
		t.Errorf("%v at %v: %v, %v, want nothing", p, at, got, err)
	}
}

func TestCgroupVersionTwo(t *testing.T) {
	root := versionTwo()
	sources := overload.NewCgroupPressure(root)
	for i, want := range []string{"cgroup cpu", "cgroup throttling", "cgroup stall"} {
		if sources[i].String() != want {
			t.Errorf("%v, want %s", sources[i], want)
		}
		absent(t, sources[i], time.Second)
	}
	// Within 2 s: 3 s of processor time of 4, 5 of 20 periods, and 500 ms.
	root[inV2+"cpu.stat"].Data = []byte("usage_usec 8000000\nnr_periods 120\nnr_throttled 15\n")
	root[inV2+"cpu.pressure"].Data = []byte("some avg10=1.00 avg60=2.00 avg300=3.00 total=1500000\n")
	for i, want := range []float64{0.75, 0.25, 0.25} {
		read(t, sources[i], 3*time.Second, want)
	}
	for _, s := range sources { // nothing has happened
		read(t, s, 4*time.Second, 0)
	}
	// The quota is halved, as one may at any time.
	root[inV2+"cpu.max"].Data = []byte("100000 100000\n")
	root[inV2+"cpu.stat"].Data = []byte("usage_usec 8500000\nnr_periods 130\nnr_throttled 25\n")
	read(t, sources[0], 5*time.Second, 0.5)
	read(t, sources[1], 5*time.Second, 1)
}

// TestCgroupTightestQuota takes the quota, and what counts against it, from a group above that of the process.
func TestCgroupTightestQuota(t *testing.T) {
	root := versionTwo()
	root["sys/fs/cgroup/shop/cpu.max"].Data = []byte("100000 100000")
	s := overload.NewCgroupPressure(root)[0]
	absent(t, s, time.Second)
	root["sys/fs/cgroup/shop/cpu.stat"].Data = []byte("usage_usec 77900000\n")
	read(t, s, 2*time.Second, 0.9)
	// Once that one has no quota any more, another counter counts, and there is nothing to compare it with.
	root["sys/fs/cgroup/shop/cpu.max"].Data = []byte("max 100000")
	absent(t, s, 3*time.Second)
	read(t, s, 4*time.Second, 0)
}

func TestCgroupVersionOne(t *testing.T) {
	root := versionOne()
	sources := overload.NewCgroupPressure(root)
	for _, s := range sources {
		absent(t, s, time.Second)
	}
	root[inV1+"cpuacct.usage"].Data = []byte("8000000000\n")
	root[inV1+"cpu.stat"].Data = []byte("nr_periods 120\nnr_throttled 15\nthrottled_time 100\n")
	read(t, sources[0], 3*time.Second, 0.75)
	read(t, sources[1], 3*time.Second, 0.25)
	absent(t, sources[2], 3*time.Second)
}

// TestCgroupInAContainer has a path that is that of the host, while the group is mounted as the root.
func TestCgroupInAContainer(t *testing.T) {
	for _, self := range []string{"0::/\n", "0::/../../elsewhere\n", "0::/kubepods/pod1/abc"} {
		root := files(map[string]string{
			"proc/self/cgroup": self, "sys/fs/cgroup/cpu.max": "50000 100000", "sys/fs/cgroup/cpu.stat": "usage_usec 0\n",
		})
		s := overload.NewCgroupPressure(root)[0]
		absent(t, s, time.Second)
		root["sys/fs/cgroup/cpu.stat"].Data = []byte("usage_usec 500000\n")
		read(t, s, 2*time.Second, 1)
	}
}

func TestCgroupAbsent(t *testing.T) {
	for name, root := range map[string]fs.FS{
		"nothing":  files(nil),
		"no mount": files(map[string]string{"proc/self/cgroup": "0::/\n"}),
		"no group": files(map[string]string{"proc/self/cgroup": "", "sys/fs/cgroup/cpu.max": "max 100000"}),
		"no quota": files(map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000"}),
		"no files": files(map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max"}),
	} {
		t.Run(name, func(t *testing.T) {
			for _, s := range overload.NewCgroupPressure(root) {
				absent(t, s, time.Second)
				absent(t, s, 2*time.Second)
			}
		})
	}
}

// TestCgroupGarbage has files that are not what they should be: each must be an error, and neither a pressure nor a panic.
func TestCgroupGarbage(t *testing.T) {
	for name, spoil := range map[string]func(root fstest.MapFS) int{ // answers which source notices
		"self without fields": func(r fstest.MapFS) int { r["proc/self/cgroup"].Data = []byte("garbage"); return 0 },
		"quota of words":      func(r fstest.MapFS) int { r[inV2+"cpu.max"].Data = []byte("much always"); return 0 },
		"quota of nothing":    func(r fstest.MapFS) int { r[inV2+"cpu.max"].Data = nil; return 0 },
		"quota of 0":          func(r fstest.MapFS) int { r[inV2+"cpu.max"].Data = []byte("0 100000"); return 0 },
		"period of 0":         func(r fstest.MapFS) int { r[inV2+"cpu.max"].Data = []byte("1000 0"); return 0 },
		"negative usage":      func(r fstest.MapFS) int { r[inV2+"cpu.stat"].Data = []byte("usage_usec -1\n"); return 0 },
		"past the range": func(r fstest.MapFS) int {
			r[inV2+"cpu.stat"].Data = []byte("usage_usec 9223372036854775807\n")
			return 0
		},
		"backwards":           func(r fstest.MapFS) int { r[inV2+"cpu.stat"].Data = []byte("usage_usec 1\n"); return 0 },
		"periods of words":    func(r fstest.MapFS) int { r[inV2+"cpu.stat"].Data = []byte("nr_throttled 1\nnr_periods x\n"); return 1 },
		"stall without total": func(r fstest.MapFS) int { r[inV2+"cpu.pressure"].Data = []byte("some avg10=0\n"); return 2 },
		"endless":             func(r fstest.MapFS) int { r[inV2+"cpu.pressure"].Data = []byte(strings.Repeat("x", 1<<20)); return 2 },
		"a pipe":              func(r fstest.MapFS) int { r[inV2+"cpu.max"].Mode = fs.ModeNamedPipe; return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			root := versionTwo()
			sources := overload.NewCgroupPressure(root)
			for _, s := range sources {
				absent(t, s, time.Second)
			}
			s := sources[spoil(root)]
			p, err := s.Pressure(int64(2 * time.Second))
			if err == nil || errors.Is(err, overload.ErrNoPressure) || p != 0 || !strings.HasPrefix(err.Error(), "weir: ") {
				t.Errorf("%v, %v", p, err)
			}
		})
	}
}

// FuzzCgroup feeds both versions with anything: no panic, and no pressure out of range.
func FuzzCgroup(f *testing.F) {
	f.Add("0::/shop/web\n", "200000 100000\n", "usage_usec 1\nnr_periods 1\nnr_throttled 1\n", "some total=1\n", int64(1))
	f.Add("4:cpu,cpuacct:/shop/web\n", "-1", "nr_periods 1\nnr_throttled 1\n", "9223372036854775807", int64(-1))
	f.Add("0::/../..\x00/\n1:cpu:..", "max max", "usage_usec  1", "some some total= total=-1", int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, self, limit, stat, more string, at int64) {
		root := files(map[string]string{"proc/self/cgroup": self})
		for _, dir := range []string{inV2, inV1, "sys/fs/cgroup/", "sys/fs/cgroup/cpu/"} {
			for name, text := range map[string]string{
				"cpu.max": limit, "cpu.cfs_quota_us": limit, "cpu.cfs_period_us": more, "cpu.stat": stat, "cpuacct.usage": more,
				"cpu.pressure": more,
			} {
				root[dir+name] = &fstest.MapFile{Data: []byte(text)}
			}
		}
		for _, s := range overload.NewCgroupPressure(root) {
			for i := range 3 {
				p, err := s.Pressure(at + int64(i))
				if err == nil && !(p >= 0 && p <= 100) || err != nil && p != 0 && !math.IsNaN(p) {
					t.Errorf("%v: %v, %v", s, p, err)
				}
				for _, name := range []string{inV2 + "cpu.stat", inV1 + "cpu.stat", inV2 + "cpu.pressure"} {
					root[name].Data = append(root[name].Data, '9')
				}
			}
		}
	})
}

// work keeps a processor busy for d.
func work(d time.Duration) {
	for left := d; left > 0; {
		began := time.Now()
		for range 100 {
			runtime.KeepAlive(began)
		}
		left -= time.Since(began)
	}
}

// TestProcessCPUPressureSeesWork lets a goroutine work for as long as it takes to be seen: at least half of what one processor
// can do, or a part of it where other processes take it away for long.
func TestProcessCPUPressureSeesWork(t *testing.T) {
	p := overload.ProcessCPUPressure()
	began := time.Now()
	absent(t, p, 0)
	for deadline := began.Add(2 * time.Minute); ; {
		from := time.Since(began)
		if _, err := p.Pressure(int64(from)); err != nil { // begins anew
			t.Fatal(err)
		}
		work(50 * time.Millisecond)
		got, err := p.Pressure(int64(time.Since(began)))
		if err != nil || got < 0 || got > 1 {
			t.Fatalf("%v, %v", got, err)
		}
		want := 0.5
		if time.Since(began) > 10*time.Second { // then others take most of it away
			want /= 20
		}
		if got > want/float64(runtime.GOMAXPROCS(0)) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a processor works, and the pressure is %v", got)
		}
	}
	// In an hour that is little.
	if got, err := p.Pressure(int64(time.Since(began)) + int64(time.Hour)); err != nil || got > 0.01 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestSchedulerPressureSeesWaiting starts more work than processors, until goroutines have to wait.
func TestSchedulerPressureSeesWaiting(t *testing.T) {
	p := overload.SchedulerPressure(50 * time.Microsecond)
	absent(t, p, 0)
	deadline := time.Now().Add(2 * time.Minute)
	for {
		done := make(chan struct{})
		for range 1000 {
			go func() {
				work(100 * time.Microsecond)
				done <- struct{}{}
			}()
		}
		for range 1000 {
			<-done
		}
		got, err := p.Pressure(0)
		if err != nil || got < 0 || got > 2 {
			t.Fatalf("%v, %v", got, err)
		}
		if got == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a thousand goroutines want to run, and the pressure is %v", got)
		}
	}
}

func TestSystemPressureCanBeRead(t *testing.T) {
	s, err := overload.NewShedder(overload.ShedderOptions{Clock: manualclock.New(0)})
	if err != nil {
		t.Fatal(err)
	}
	st := s.Stats()
	want := 2
	if runtime.GOOS == "linux" {
		want = 5
	}
	if len(st.Readings) != want || st.Readings[0].Source != "process cpu" {
		t.Errorf("%+v", st)
	}
	for _, r := range st.Readings {
		if r.Err != nil {
			t.Errorf("%+v", r)
		}
	}
}

func TestLimiterPressure(t *testing.T) {
	c, err := weir.NewConcurrency(8, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := overload.LimiterPressure("shop", c)
	read(t, p, 0, 0)
	l := c.TryAcquire(6)
	read(t, p, 0, 0.75)
	if err := c.SetLimit(2); err != nil {
		t.Fatal(err)
	}
	read(t, p, 0, 1)
	l.Release()
	read(t, p, 0, 0)
	if p.String() != "shop" {
		t.Error(p)
	}
}
