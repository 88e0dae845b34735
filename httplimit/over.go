package httplimit

import "context"

type overKey struct{}

// Over returns the names of the policies in [policy.ModeTag] that would have refused the request with this context, which has
// passed a [Gate] nevertheless: see [policy.Verdict.Over]. Its handler may do less for it. Those of the innermost gate come
// first. There are none of a request that costs nothing.
func Over(ctx context.Context) []string {
	names, _ := ctx.Value(overKey{}).([]string)
	return names
}
