package redis

import (
	"context"
	"crypto/tls"
	"net"
	"sync"

	"github.com/weirhq/weir"
)

type dialFunc func(ctx context.Context, address string, d *net.Dialer, config *tls.Config) (net.Conn, error)

// dialsPerSecond is how many connections are tried to an address, which is also how many may be at once: a server that refuses
// them gets no more, however many requests fail meanwhile.
const dialsPerSecond = 20

// dialer makes connections.
type dialer struct {
	dial  dialFunc
	limit *weir.Keyed[string] // of each address

	lock   sync.Mutex
	failed map[string]error // why the last one to an address failed
}

func newDialer(dial dialFunc) (*dialer, error) {
	if dial == nil {
		dial = dialTCP
	}
	limit, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(dialsPerSecond), dialsPerSecond), weir.KeyedOptions{
		MaxKeys: 1 << 14, AdmitWhenFull: true,
	})
	return &dialer{dial: dial, limit: limit, failed: make(map[string]error)}, err
}

func dialTCP(ctx context.Context, address string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
	if config != nil {
		return (&tls.Dialer{NetDialer: d, Config: config}).DialContext(ctx, "tcp", address)
	}
	return d.DialContext(ctx, "tcp", address)
}

// connect makes a connection, unless that has just been tried too often: then the error is that of the last time.
func (d *dialer) connect(ctx context.Context, address string, nd *net.Dialer, config *tls.Config) (net.Conn, error) {
	if !d.limit.Allow(address) {
		d.lock.Lock()
		err := d.failed[address]
		d.lock.Unlock()
		if err == nil {
			err = errDials
		}
		return nil, err
	}
	conn, err := d.dial(ctx, address, nd, config)
	d.lock.Lock()
	if err == nil {
		delete(d.failed, address)
	} else if len(d.failed) < 1<<10 {
		d.failed[address] = err
	}
	d.lock.Unlock()
	if err != nil {
		return nil, err
	}
	return &guarded{Conn: conn}, nil
}
