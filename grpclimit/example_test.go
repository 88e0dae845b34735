package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/grpclimit"
	"github.com/weirhq/weir/policy"
)

// limitedServer is a server that limits each client.
func limitedServer() (*grpc.Server, error) {
	perClient, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerHour(10), 2), weir.KeyedOptions{Name: "per-client"})
	if err != nil {
		return nil, err
	}
	limit, err := grpclimit.NewServer(grpclimit.ServerOptions{Keyed: perClient})
	if err != nil {
		return nil, err
	}
	return grpc.NewServer(
		grpc.ChainUnaryInterceptor(limit.Unary()),
		grpc.ChainStreamInterceptor(limit.Stream()),
	), nil
}

// pacedClient is a connection that sends no more than 5 calls a second.
func pacedClient(target string) (*grpc.ClientConn, error) {
	limiter, err := weir.New(weir.TokenBucket(weir.PerSecond(5), 0), weir.Options{Name: "out", QueueLimit: 1000})
	if err != nil {
		return nil, err
	}
	pace, err := grpclimit.NewClient(grpclimit.ClientOptions{Limiter: limiter, MaxRetries: 2})
	if err != nil {
		return nil, err
	}
	return grpc.NewClient(target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(pace.Unary()),
		grpc.WithChainStreamInterceptor(pace.Stream()),
	)
}

// plainClient is a connection without limits.
func plainClient(target string) (*grpc.ClientConn, error) {
	return grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// serve starts a server with the service of the tests.
func serve(server *grpc.Server) (target string, stop func()) {
	testgrpc.RegisterTestServiceServer(server, &service{})
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	return l.Addr().String(), func() {
		server.Stop()
		if err := <-done; err != nil {
			panic(err)
		}
	}
}

// A client may make two calls at once, and ten an hour for ever.
func ExampleNewServer() {
	server, err := limitedServer()
	if err != nil {
		panic(err)
	}
	target, stop := serve(server)
	defer stop()
	conn, err := plainClient(target)
	if err != nil {
		panic(err)
	}
	defer conn.Close()

	client := testgrpc.NewTestServiceClient(conn)
	for range 3 {
		_, err := client.UnaryCall(context.Background(), &testgrpc.SimpleRequest{})
		fmt.Fprintln(os.Stdout, status.Code(err))
		for _, detail := range status.Convert(err).Details() {
			switch d := detail.(type) {
			case *errdetails.RetryInfo:
				fmt.Fprintln(os.Stdout, "come back in about", d.GetRetryDelay().AsDuration().Round(6*time.Minute))
			case *errdetails.QuotaFailure:
				fmt.Fprintln(os.Stdout, "refused by", d.GetViolations()[0].GetSubject())
			}
		}
	}
	// Output:
	// OK
	// OK
	// ResourceExhausted
	// come back in about 6m0s
	// refused by per-client
}

// The client waits for its turn, and for a server that has refused it.
func ExampleNewClient() {
	server, err := limitedServer()
	if err != nil {
		panic(err)
	}
	target, stop := serve(server)
	defer stop()
	conn, err := pacedClient(target)
	if err != nil {
		panic(err)
	}
	defer conn.Close()

	client := testgrpc.NewTestServiceClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for range 3 {
		_, err = client.UnaryCall(ctx, &testgrpc.SimpleRequest{})
	}
	fmt.Fprintln(os.Stdout, status.Code(err), "by the server, which asks for more time than there is")
	_, err = client.UnaryCall(ctx, &testgrpc.SimpleRequest{})
	if e, ok := errors.AsType[*grpclimit.NotSentError](err); ok {
		fmt.Fprintln(os.Stdout, status.Code(err), "without a call, for about", e.Decision.RetryAfter.Round(6*time.Minute))
	}
	// Output:
	// ResourceExhausted by the server, which asks for more time than there is
	// ResourceExhausted without a call, for about 6m0s
}

// byRules decides by rules: 100 calls a second for each API key, and 5 searches at a time in all.
func byRules() (grpclimit.ServerOptions, error) {
	engine, err := policy.NewEngine(&policy.Set{
		Policies: []policy.Policy{
			{
				Name: "per-key", Key: policy.HeaderText("X-Api-Key"),
				Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerSecond(100), 200)}},
			},
			{
				Name:   "searches",
				Limits: []policy.Limit{{Limit: weir.AtOnce(5)}},
			},
		},
		Rules: []policy.Rule{
			{
				Name: "all", Match: policy.Match{Protocols: []string{"grpc"}},
				Limits: []policy.Use{{Policy: "per-key"}},
			},
			{
				Name: "search", Match: policy.Match{Paths: []string{"/shop.v1.Search/"}, Protocols: []string{"grpc"}},
				Limits: []policy.Use{{Policy: "searches"}},
			},
		},
	}, policy.EngineOptions{})
	if err != nil {
		return grpclimit.ServerOptions{}, err
	}
	return grpclimit.ServerOptions{Engine: engine}, nil
}

// messages limits what a client sends on its streams to 50 messages a second.
func messages() (grpclimit.ServerOptions, error) {
	perClient, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(50), 0), weir.KeyedOptions{Name: "messages", QueueLimit: 50})
	if err != nil {
		return grpclimit.ServerOptions{}, err
	}
	return grpclimit.ServerOptions{
		Keyed:          perClient,
		Cost:           func(context.Context, *grpclimit.Call) int64 { return 0 },
		MessageCost:    grpclimit.Each(1),
		MessageMaxWait: weir.Never,
	}, nil
}

// behindProxies believes what proxies say about the client.
func behindProxies(perClient *weir.Keyed[string]) grpclimit.ServerOptions {
	return grpclimit.ServerOptions{
		Keyed:   perClient,
		Clients: clientip.Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
	}
}

// The options of docs/grpc.md make servers.
func Example_options() {
	rules, err := byRules()
	if err != nil {
		panic(err)
	}
	streams, err := messages()
	if err != nil {
		panic(err)
	}
	perClient, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(10), 0), weir.KeyedOptions{})
	if err != nil {
		panic(err)
	}
	for _, o := range []grpclimit.ServerOptions{rules, streams, behindProxies(perClient)} {
		_, err := grpclimit.NewServer(o)
		fmt.Fprintln(os.Stdout, err, codes.OK)
	}
	// Output:
	// <nil> OK
	// <nil> OK
	// <nil> OK
}
