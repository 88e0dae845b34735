package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/httplimit"
)

// A process of a fleet that shares a metered API. In production the engine is that of package durable/etcd.
func ExampleNewMetered() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }))
	defer server.Close()
	cluster, err := durable.NewMemory(durable.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	engine := cluster.Engine()
	defer func() { _ = engine.Close() }()
	node, err := durable.NewNode(durable.NodeOptions{Engine: engine, Address: "this node"})
	if err != nil {
		panic(err)
	}
	defer func() { _ = node.Close() }()

	metered, err := httplimit.NewMetered(httplimit.MeteredOptions{
		Limits: node,
		Limit:  durable.MeteredAPI(func(string) string { return "" }, nil), // 5 at once, 8 a minute
		Base:   server.Client().Transport,
	})
	if err != nil {
		panic(err)
	}
	transport, err := httplimit.NewTransport(httplimit.TransportOptions{Base: metered}) // which obeys the server as well
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}
	for range 6 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second/5)
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			panic(err)
		}
		response, err := client.Do(request)
		if limited, ok := errors.AsType[*httplimit.LimitedError](err); ok {
			fmt.Println("not sent:", limited.Reason, limited.RetryAfter > 5*time.Second)
		} else {
			fmt.Println(response.Status, response.Body.Close())
		}
		cancel()
	}
	// Output:
	// 200 OK <nil>
	// 200 OK <nil>
	// 200 OK <nil>
	// 200 OK <nil>
	// 200 OK <nil>
	// not sent: deadline true
}
