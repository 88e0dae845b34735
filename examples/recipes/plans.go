package recipes

import (
	"net/http"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
)

// PerPlan gives each API key the limit of its plan. planOf returns "" for a key without one, which has that of the free plan.
func PerPlan(api http.Handler, planOf func(key string) string) (http.Handler, error) {
	free := weir.TokenBucket(weir.PerMinute(60), 10)
	plans := map[string]weir.Limit{
		"pro":  weir.TokenBucket(weir.PerSecond(10), 50),
		"team": weir.TokenBucket(weir.PerSecond(100), 500),
	}
	// Of a plan that is not in the map it returns the zero Limit, which stands for the free one.
	limitOf := func(key string) weir.Limit { return plans[planOf(key)] }
	keys, err := weir.NewKeyedFunc(free, weir.KeyedOptions{Name: "plan"}, limitOf)
	if err != nil {
		return nil, err
	}
	limit, err := httplimit.New(httplimit.Options{Keyed: keys, Key: httplimit.RequireHeader("X-Api-Key")})
	if err != nil {
		return nil, err
	}
	return limit(api), nil
}
