package enginetest_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/enginetest"
)

// TestMemory: the cluster in memory passes, in virtual time.
func TestMemory(t *testing.T) {
	for _, test := range enginetest.Tests() {
		t.Run(test.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, err := durable.NewMemory(durable.MemoryOptions{Latency: time.Millisecond})
				if err != nil {
					t.Fatal(err)
				}
				test.Run(t, enginetest.Cluster{
					Engine: func(*testing.T) durable.Engine { return m.Engine() }, TTL: time.Second, Virtual: true,
				})
			})
		})
	}
}

// TestFile: the file passes, in virtual time.
func TestFile(t *testing.T) {
	for _, test := range enginetest.Tests() {
		t.Run(test.Name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "limits")
			synctest.Test(t, func(t *testing.T) {
				f, err := durable.OpenFile(path, durable.FileOptions{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = f.Close() })
				test.Run(t, enginetest.Cluster{
					Engine: func(*testing.T) durable.Engine { return f.Engine() }, TTL: 10 * time.Second, Virtual: true,
				})
			})
		})
	}
}
