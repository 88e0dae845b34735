package main

import (
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

// TestHasMemory has machines and containers of all kinds, where files in memory must not take what is not there.
func TestHasMemory(t *testing.T) {
	const (
		room    = 8 << 30
		plenty  = "MemTotal: 99 kB\nMemAvailable:   16777216 kB\n"
		unified = "0::/a/b\n"
		legacy  = "5:cpu,cpuacct:/a\n4:memory:/a/b\n1:name=systemd:/a\n"
	)

	cases := []struct {
		name  string
		files map[string]string
		want  bool
	}{
		{"nothing is known", nil, false},
		{"a machine", map[string]string{"proc/meminfo": plenty}, true},
		{"a small machine", map[string]string{"proc/meminfo": "MemAvailable: 8388607 kB\n"}, false},
		{"a machine that tells no number", map[string]string{"proc/meminfo": "MemAvailable: many kB\n"}, false},
		{"no bound", map[string]string{
			"proc/meminfo": plenty, "proc/self/cgroup": unified,
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/b/memory.current": "5\n",
		}, true},
		{"a group with room", map[string]string{
			"proc/meminfo": plenty, "proc/self/cgroup": unified,
			"sys/fs/cgroup/a/b/memory.max": "9000000000\n", "sys/fs/cgroup/a/b/memory.current": "400000000\n",
		}, true},
		{"a small group", map[string]string{
			"proc/meminfo": plenty, "proc/self/cgroup": unified,
			"sys/fs/cgroup/a/b/memory.max": "4294967296\n", "sys/fs/cgroup/a/b/memory.current": "0\n",
		}, false},
		{"a group that is full of what can be read again", map[string]string{
			"proc/meminfo": plenty, "proc/self/cgroup": unified,
			"sys/fs/cgroup/a/b/memory.max": "9000000000\n", "sys/fs/cgroup/a/b/memory.current": "9000000000\n",
			"sys/fs/cgroup/a/b/memory.stat": "anon 5\ninactive_file 8000000000\nactive_file 900000000\n",
		}, true},
		{"a group that is full", map[string]string{
			"proc/meminfo": plenty, "proc/self/cgroup": unified,
			"sys/fs/cgroup/a/b/memory.max": "9000000000\n", "sys/fs/cgroup/a/b/memory.current": "9000000000\n",
			"sys/fs/cgroup/a/b/memory.stat": "anon 9000000000\ninactive_file 0\n",
		}, false},
		{"a group above is small", map[string]string{
			"proc/meminfo": plenty, "proc/self/cgroup": unified,
			"sys/fs/cgroup/a/memory.max": "4294967296\n", "sys/fs/cgroup/a/memory.current": "0\n",
		}, false},
		{"a container that sees its own group only", map[string]string{
			"proc/meminfo": plenty, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "4294967296\n", "sys/fs/cgroup/memory.current": "0\n",
		}, false},
		{"a small group of the first version", map[string]string{
			"proc/meminfo": plenty, "proc/self/cgroup": legacy,
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "4294967296\n",
			"sys/fs/cgroup/memory/a/b/memory.usage_in_bytes": "0\n",
		}, false},
		{"a group of the first version, full of what can be read again", map[string]string{
			"proc/meminfo": plenty, "proc/self/cgroup": legacy,
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "9000000000\n",
			"sys/fs/cgroup/memory/a/b/memory.usage_in_bytes": "9000000000\n",
			"sys/fs/cgroup/memory/a/b/memory.stat":           "total_inactive_file 9000000000\n",
		}, true},
	}

	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			root := fstest.MapFS{}

			for name, text := range c.files {
				root[name] = &fstest.MapFile{Data: []byte(text)}
			}

			if got := hasMemory(root, room); got != c.want {
				t.Errorf("hasMemory = %t, want %t", got, c.want)
			}
		})
	}
}

// TestMemoryDirectories: one that is in use stays, and one that was left behind is removed.
func TestMemoryDirectories(t *testing.T) {
	parent := t.TempDir()

	used, remove := makeDirectory(t.Context(), parent)
	if used == "" {
		t.Fatal("there is no directory")
	}

	left := filepath.Join(parent, memoryName+"left")

	if err := os.MkdirAll(filepath.Join(left, "tests"), 0o700); err != nil {
		t.Fatal(err)
	}

	removeLeftovers(parent)

	if info, err := os.Stat(used); err != nil || info.Mode().Perm() != 0o777 || info.Mode()&os.ModeSticky == 0 {
		t.Errorf("the directory that is in use: %v, %v", info, err)
	}

	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("what was left behind: %v", err)
	}

	remove()

	if _, err := os.Stat(used); !os.IsNotExist(err) {
		t.Errorf("at the end: %v", err)
	}

	if got, _ := makeDirectory(t.Context(), filepath.Join(parent, "missing")); got != "" {
		t.Errorf("%s is made where nothing can be", got)
	}
}

// TestMemoryRoom: where there is none, or no file system in memory, tests have their files elsewhere.
func TestMemoryRoom(t *testing.T) {
	if hasRoom(filepath.Join(t.TempDir(), "missing"), 0) {
		t.Error("there is room in a directory that is missing")
	}

	if hasRoom("/proc", 0) {
		t.Error("there is room in a file system of another kind")
	}

	if hasRoom(memory, 1<<62) {
		t.Error("there is more room than there can be")
	}
}
