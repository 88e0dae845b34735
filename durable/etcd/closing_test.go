package etcd_test

import (
	"errors"
	"testing"

	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/etcd"
)

// TestEnginesCloseDuringCalls: an engine that is closed while calls begin has nothing running after that, and such a call says that
// it is closed, or has begun before. The race detector sees what begins too late.
func TestEnginesCloseDuringCalls(t *testing.T) {
	t.Parallel()
	client := quick(t).Client()
	for range 100 {
		e, err := etcd.New(client, etcd.Options{TTL: patient})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{}, 2)
		go func() {
			defer func() { ended <- struct{}{} }()
			for {
				if term, err := e.Campaign(t.Context(), "here"); err == nil {
					_ = term.Resign(t.Context())
				} else if errors.Is(err, durable.ErrEngineClosed) {
					return
				}
			}
		}()
		go func() {
			defer func() { ended <- struct{}{} }()
			for {
				w, err := e.Watch(t.Context())
				if err != nil {
					return
				}
				<-w
			}
		}()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		<-ended
		<-ended
	}
}
