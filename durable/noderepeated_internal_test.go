package durable

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestRepeatedErrors: an attempt that fails five times a second with the same error is told every 10 s, and another error at once.
func TestRepeatedErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r repeated
		told := 0
		for range 300 {
			if r.tell(errors.New("refused")) {
				told++
			}
			time.Sleep(retryCampaign)
		}
		if told != 6 {
			t.Errorf("told %d times in a minute", told)
		}
		if !r.tell(errors.New("reset")) || r.tell(errors.New("reset")) {
			t.Error("another error is not told once")
		}
	})
}
