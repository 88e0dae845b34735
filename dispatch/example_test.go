package dispatch_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/weirhq/weir/dispatch"
	"github.com/weirhq/weir/guard"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/tiers"
)

func ExampleDispatcher() {
	type conn struct{ peer *dispatch.Peer }
	type message struct {
		op   uint64
		text string
	}
	clock := manualclock.New(0) // a clock that stands, for this example
	options := guard.DefaultOptions()
	options.Clock = clock
	g, err := guard.New(options)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close()
	ts, err := tiers.New(tiers.Options{Clock: clock})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ts.Close()

	d, err := dispatch.New(dispatch.Options[*conn, message]{
		Guard: g,
		Tiers: ts,
		Clock: clock,
		Op:    func(m message) uint64 { return m.op },
		Peer:  func(c *conn) *dispatch.Peer { return c.peer },
		Notify: func(_ context.Context, _ *conn, n dispatch.Notice) error {
			fmt.Println("refused:", n.Decision.Reason)
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	const opLogin = 1
	err = d.Handle(opLogin, &tiers.Attribute{RPS: 1, Burst: 2}, func(_ context.Context, _ *conn, m message) error {
		fmt.Println("welcome", m.text)
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	c := &conn{dispatch.PeerOf(netip.MustParseAddr("192.0.2.1"))} // of a net.Conn: dispatch.NewPeer(c.RemoteAddr())
	for range 4 {
		if err := d.Dispatch(context.Background(), c, message{opLogin, "ada"}); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(d.Stats().Ops[0].Soft, "dropped")
	// Output:
	// welcome ada
	// welcome ada
	// refused: soft-throttle
	// 2 dropped
}

// A rule for all requests and one for a path; a health check is free.
