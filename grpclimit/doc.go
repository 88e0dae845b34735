// Package grpclimit limits the calls and the streams of gRPC with the limiters of package weir, or with the rules of package
// policy, on both sides of a connection.
//
// A [Server] has two interceptors that allow a call or refuse it:
//
//	perClient, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(10), 20), weir.KeyedOptions{Name: "per-client"})
//	...
//	limit, err := grpclimit.NewServer(grpclimit.ServerOptions{Keyed: perClient})
//	...
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(limit.Unary()),
//		grpc.ChainStreamInterceptor(limit.Stream()),
//	)
//
// What is refused gets codes.ResourceExhausted with two details: RetryInfo, when to come back, and QuotaFailure, every limit that
// refuses. If the server has no room for any client, it gets codes.Unavailable. [Code] lists them all. The handler is not called.
//
// A client is its network address, and no metadata is believed about it unless ServerOptions.Clients names the proxies that may
// be. [ByMetadata], [ByMethod] and [ByAll] make other keys, and an Engine decides by rules.
//
// A stream is charged when it is opened and, with ServerOptions.MessageCost, for each message that the client sends on it.
//
// A [Client] does the same from the other side: it paces the calls of a program, and holds them back until a server will accept
// them:
//
//	pace, err := grpclimit.NewClient(grpclimit.ClientOptions{Limiter: limiter, MaxRetries: 2})
//	...
//	conn, err := grpc.NewClient(target,
//		grpc.WithChainUnaryInterceptor(pace.Unary()),
//		grpc.WithChainStreamInterceptor(pace.Stream()),
//		...
//	)
//
// The interceptor of an allowed call makes one allocation, a context that keeps the call from being charged twice, and one more
// for a key (TestAdmittedAllocations).
package grpclimit
