package redis

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store/redis/internal/resp"
)

// dialsPerSecond is how many connections are tried to an address, which is also how many may be at once: a server that refuses
// them gets no more, however many requests fail meanwhile.
const dialsPerSecond = 20

var errDials = errors.New("connections to it end as often as they may be made")

// dialer makes connections.
type dialer struct {
	timeout time.Duration
	limit   *weir.Keyed[string] // of each address

	lock   sync.Mutex
	failed map[string]error // why the last one to an address failed
}

func newDialer(timeout time.Duration) (*dialer, error) {
	limit, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(dialsPerSecond), dialsPerSecond), weir.KeyedOptions{
		MaxKeys: 1 << 14, AdmitWhenFull: true,
	})
	return &dialer{timeout: timeout, limit: limit, failed: make(map[string]error)}, err
}

// dial makes a connection, unless that has just been tried too often: then the error is that of the last time.
func (d *dialer) dial(ctx context.Context, login *resp.Login, address string) (*resp.Conn, error) {
	if !d.limit.Allow(address) {
		d.lock.Lock()
		err := d.failed[address]
		d.lock.Unlock()
		if err == nil {
			err = errDials
		}
		return nil, err
	}
	conn, err := login.Dial(ctx, address, time.Now().Add(d.timeout))
	d.lock.Lock()
	if err == nil {
		delete(d.failed, address)
	} else if len(d.failed) < 1<<10 {
		d.failed[address] = err
	}
	d.lock.Unlock()
	return conn, err
}
