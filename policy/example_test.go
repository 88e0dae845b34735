package policy_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

func ExampleTiers() {
	tiers, err := policy.NewTiers(policy.TiersOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tiers.Close()

	search, err := tiers.Tier(&policy.Attribute{RPS: 5, Burst: 2.5})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(search)
	const opSearch = 7
	for range 5 {
		d := search.Check(opSearch, netip.MustParseAddr("192.0.2.1"))
		fmt.Println(d.Allowed, d.Reason, d.Credit())
	}
	// Output:
	// 8/s burst 4
	// true none 3
	// true none 2
	// true none 1
	// true none 0
	// false soft-throttle 0
}

func ExampleDispatcher() {
	type conn struct{ peer *policy.Peer }
	type message struct {
		op   uint64
		text string
	}
	guard, err := weir.NewGuard(weir.DefaultGuardOptions())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer guard.Close()
	tiers, err := policy.NewTiers(policy.TiersOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tiers.Close()

	d, err := policy.NewDispatcher(policy.DispatcherOptions[*conn, message]{
		Guard: guard,
		Tiers: tiers,
		Op:    func(m message) uint64 { return m.op },
		Peer:  func(c *conn) *policy.Peer { return c.peer },
		Notify: func(_ context.Context, _ *conn, n policy.Notice) error {
			fmt.Println("refused:", n.Decision.Reason)
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	const opLogin = 1
	err = d.Handle(opLogin, &policy.Attribute{RPS: 1, Burst: 2}, func(_ context.Context, _ *conn, m message) error {
		fmt.Println("welcome", m.text)
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	c := &conn{policy.PeerOf(netip.MustParseAddr("192.0.2.1"))} // of a net.Conn: policy.NewPeer(c.RemoteAddr())
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
