package bench

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// Machine is what was measured on, and with what.
type Machine struct {
	Processor string `json:"processor"`
	Cores     int    `json:"cores"`
	Threads   int    `json:"gomaxprocs"`
	System    string `json:"system"`
	Go        string `json:"go"`
	// Load is the load average of the last minute when the measurements began, negative if it is not known.
	Load     float64         `json:"load_average"`
	Versions []ModuleVersion `json:"versions"`
}

// ModuleVersion is a peer and the version that it was measured in.
type ModuleVersion struct {
	Name    string `json:"name"`
	Module  string `json:"module"`
	Version string `json:"version"`
}

// busyLoad is the load average for each core above which a machine counts as busy.
const busyLoad = 0.5

// Busy reports whether other programs were using the machine when the measurements began.
func (m Machine) Busy() bool { return m.Load > busyLoad*float64(m.Cores) }

// ThisMachine describes the machine that the program runs on, and the versions that it was built with.
func ThisMachine() Machine {
	m := Machine{
		Processor: processorModel(), Cores: runtime.NumCPU(), Threads: runtime.GOMAXPROCS(0),
		System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Load: load(),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		m.Versions = versions(info, slices.Concat(Peers(), KeyedPeers()))
	}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System += ", kernel " + strings.TrimSpace(string(release))
	}
	return m
}

// processorModel is what Linux calls the processor.
func processorModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func load() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return -1
	}
	first, _, _ := strings.Cut(string(text), " ")
	value, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return -1
	}
	return value
}

// versions are those of peers that a program was built with.
func versions(info *debug.BuildInfo, peers []Peer) (all []ModuleVersion) {
	built := map[string]string{}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		built[m.Path] = m.Version
	}
	seen := map[string]bool{}
	for _, p := range peers {
		if seen[p.Module] {
			continue
		}
		seen[p.Module] = true
		version := built[p.Module]
		if version == "" { // the programs that go test builds know no versions
			version = "(unknown version)"
		}
		all = append(all, ModuleVersion{p.Name, p.Module, version})
	}
	return all
}

// String is one line.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, %s, %s", m.Processor, m.Cores, m.System, m.Go)
}
