package enginetest_test

import (
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
