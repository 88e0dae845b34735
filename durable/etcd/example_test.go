package etcd_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable/etcd"
	"github.com/weirhq/weir/policy"
)

// A quota of a month for each customer, kept by a cluster of one node: with Peers and an Address in each of three processes, it
// survives the loss of any one of them.
func ExampleJoin() {
	directory, err := os.MkdirTemp("", "quota-") // /var/lib/shop, for instance
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(directory)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cluster, err := etcd.Join(ctx, etcd.ClusterOptions{Directory: directory, OwnerWait: time.Minute})
	if err != nil {
		fmt.Println(err) // *weir.OptionError, or etcd cannot be used
		return
	}
	defer cluster.Close() // hands over to another node
	engine, err := policy.NewEngine(&policy.Set{
		Policies: []policy.Policy{{
			Name: "month", Limits: []policy.Limit{{Limit: weir.CalendarWindow(2, weir.Month(nil))}},
			Key: policy.HeaderText("X-Customer"), Durability: policy.DurabilityCluster,
		}},
		Rules: []policy.Rule{{Name: "orders", Limits: []policy.Use{{Policy: "month"}}}},
	}, policy.EngineOptions{Durable: cluster.Node()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	var v policy.Verdict
	for range 3 {
		engine.Take(&policy.Request{Header: http.Header{"X-Customer": {"acme"}}, Context: ctx}, &v)
		fmt.Println(v.Allowed, v.Decision().Remaining)
		v.Release()
	}
	// Output:
	// true 1
	// true 0
	// false 0
}
