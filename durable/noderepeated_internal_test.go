package durable

import (
	"errors"
	"fmt"
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

// TestErrorsThatDiffer: an attempt that fails with another error each time, as one that names the port of its connection, is not
// told each time.
func TestErrorsThatDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r repeated
		told := 0
		for i := range 300 {
			if r.tell(fmt.Errorf("write tcp 127.0.0.1:%d: broken pipe", i)) {
				told++
			}
			time.Sleep(retryCampaign)
		}
		if told != 6*mostTold {
			t.Errorf("told %d times in a minute", told)
		}
	})
}
