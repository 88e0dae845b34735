package offline_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/offline"
)

// soon is a context that ends after so many looks at it.
type soon struct {
	context.Context

	looks int
}

func (c *soon) Err() error {
	if c.looks--; c.looks < 0 {
		return context.Canceled
	}
	return nil
}

// TestInterrupted: a test ends with its context, in the middle of a step and while it looks for the reason of a failure, and
// nothing is said of it.
func TestInterrupted(t *testing.T) {
	file := write(t, `
config: weir.yaml
client: 192.0.2.1
tests:
  - name: many
    steps:
      - {request: GET /a, times: 20000, every: 1s, expect: {allowed: false, key: someone}}
`)
	for looks := range 12 { // a step of 20,000 requests looks five times, and there is one look before
		cmd := offline.UnitTestCommand()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		var out, errs bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&errs)
		cmd.SetArgs([]string{file})
		if err := cmd.ExecuteContext(&soon{t.Context(), looks}); !errors.Is(err, context.Canceled) || out.Len() > 0 || errs.Len() > 0 {
			t.Errorf("after %d looks: %v, %s%s", looks, err, &out, &errs)
		}
	}
}
