package store_test

import (
	"errors"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// TestConstructorsRefuseNil: a store over nothing is an error of its constructor, and not a panic of the first call, or of a
// goroutine, which would end the process.
func TestConstructorsRefuseNil(t *testing.T) {
	for name, build := range map[string]func() (any, error){
		"NewFleet":      func() (any, error) { return store.NewFleet(nil, store.FleetOptions{}) },
		"NewBreaker":    func() (any, error) { return store.NewBreaker(nil, store.BreakerOptions{}) },
		"NewLeased":     func() (any, error) { return store.NewLeased(nil, store.LeasedOptions{}) },
		"NewOptimistic": func() (any, error) { return store.NewOptimistic(nil, store.OptimisticOptions{}) },
		"NewLocked":     func() (any, error) { return store.NewLocked(nil, store.LockedOptions{}) },
		"NewReplicas":   func() (any, error) { return store.NewReplicas(nil, store.ReplicasOptions{}) },
	} {
		_, err := build()
		if _, ok := errors.AsType[*weir.OptionError](err); !ok {
			t.Errorf("%s(nil): %v", name, err)
		}
	}
}
