package httpclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/httpclient"
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

	environment := func(name string) string { // in production os.Getenv
		return map[string]string{durable.PerMinuteVariable: "0.01"}[name]
	}
	metered, err := httpclient.NewMetered(httpclient.MeteredOptions{
		Limits:     node,
		Limit:      durable.MeteredAPI(environment, nil), // 5 at once, then one in 100 minutes
		QueueLimit: httpclient.NoQueue,                   // a request that would have to wait gets an error
		Base:       server.Client().Transport,
	})
	if err != nil {
		panic(err)
	}
	transport, err := httpclient.New(httpclient.Options{Base: metered}) // which obeys the server as well
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}
	for range 6 {
		request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			panic(err)
		}
		response, err := client.Do(request)
		limited, ok := errors.AsType[*httpclient.LimitedError](err)
		switch {
		case ok:
			fmt.Println("not sent:", limited.Reason, limited.RetryAfter > time.Hour)
		case err != nil:
			panic(err)
		default:
			fmt.Println(response.Status, response.Body.Close())
		}
	}
	// Output:
	// 200 OK <nil>
	// 200 OK <nil>
	// 200 OK <nil>
	// 200 OK <nil>
	// 200 OK <nil>
	// not sent: queue-full true
}
