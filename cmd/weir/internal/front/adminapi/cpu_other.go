//go:build !unix

package adminapi

// cpuSeconds is how much time of processors the program has used: it is not known here.
func cpuSeconds() float64 { return -1 }
