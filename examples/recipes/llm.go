package recipes

import (
	"context"

	"github.com/weirhq/weir"
)

// TokensPerMinute is a limit for the tokens of a language model, in whose queue calls may wait for a million tokens.
func TokensPerMinute(n int64) (*weir.Limiter, error) {
	return weir.New(weir.TokenBucket(weir.PerMinute(n), 0), weir.Options{Name: "tokens", QueueLimit: 1_000_000})
}

// Complete waits for the tokens that a call costs at most, makes the call, and pays for what it has used.
func Complete(ctx context.Context, tokens *weir.Limiter, most int64, call func(context.Context) (used int64, err error)) error {
	lease, err := tokens.Reserve(ctx, most)
	if err != nil {
		return err // the deadline of ctx comes first, or most is more than the limit ever allows
	}
	used, err := call(ctx)
	if err != nil {
		lease.Cancel() // nothing was used: all of it comes back
		return err
	}
	lease.Commit(used) // less is refunded, more is owed
	return nil
}
