package verify_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails if any test of the package leaves a goroutine behind: limiters have none of their own, and every timer
// and every waiter ends.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
