package redis_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
	"github.com/weirhq/weir/store/redis"
)

// A program of which several processes run: they share the limit of each policy as its Consistency says, and answer as its Fail
// says while Redis is away.
func Example() { //nolint:testableexamples // without a server
	kept, err := redis.Open(redis.Options{
		URL:      "redis://127.0.0.1:6379/0",
		Username: "weir",
		Password: os.Getenv("REDIS_PASSWORD"),
		Timeout:  50 * time.Millisecond,
	})
	if err != nil {
		panic(err) // *weir.OptionError, or store.ErrUnavailable if no server answers
	}
	fleet, err := store.NewFleet(kept, store.FleetOptions{Logger: slog.Default()})
	if err != nil {
		panic(err)
	}
	defer fleet.Close() // gives back what was taken in blocks and not used, and closes the store
	engine, err := policy.NewEngine(&policy.Set{
		Policies: []policy.Policy{{
			Name: "orders", Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerSecond(50), 0)}}, Key: policy.ClientIP(),
			Consistency: policy.ConsistencyCoherent, Fail: policy.FailLocal,
		}, {
			Name: "reads", Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerSecond(10_000), 20_000)}}, Key: policy.ClientIP(),
			Consistency: policy.ConsistencyLeased, Fail: policy.FailOpen,
		}},
		Rules: []policy.Rule{
			{Name: "orders", Match: policy.Match{Methods: []string{http.MethodPost}}, Limits: []policy.Use{{Policy: "orders"}}},
			{Name: "reads", Match: policy.Match{Methods: []string{http.MethodGet}}, Limits: []policy.Use{{Policy: "reads"}}},
		},
	}, policy.EngineOptions{Store: fleet})
	if err != nil {
		panic(err)
	}
	defer engine.Close()
	var v policy.Verdict
	engine.Take(&policy.Request{Method: http.MethodPost, Client: netip.MustParseAddr("192.0.2.1")}, &v)
	defer v.Release()
	fmt.Println(v.Allowed, v.Decision())
}

// The store alone: each call is one round trip and exact, and fails if no answer comes in time.
func ExampleOpen() { //nolint:testableexamples // without a server
	s, err := redis.Open(redis.Options{URL: "redis://127.0.0.1:6379"})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	charges := []store.Charge{{Policy: "mails", Key: "alice", Limit: weir.TokenBucket(weir.PerHour(100), 0), N: 1}}
	decisions := make([]weir.Decision, len(charges))
	switch err := store.Take(context.Background(), s, charges, decisions); {
	case errors.Is(err, store.ErrUnavailable):
		fmt.Println("nobody knows: it is for you to refuse or to allow")
	case err != nil:
		panic(err) // the charges are wrong
	case !decisions[0].Allowed:
		fmt.Println("come back in", decisions[0].RetryAfter)
	default:
		fmt.Println("left", decisions[0].Remaining)
	}
}

// Three sentinels that watch the set "mymaster", over TLS.
func ExampleOpen_sentinels() { //nolint:testableexamples // without a server
	s, err := redis.Open(redis.Options{
		URL:              "rediss://10.0.0.1:26379?addr=10.0.0.2:26379&addr=10.0.0.3:26379&master_set=mymaster",
		Password:         os.Getenv("REDIS_PASSWORD"),
		SentinelPassword: os.Getenv("SENTINEL_PASSWORD"),
	})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	fmt.Println(s) // without the password
}
