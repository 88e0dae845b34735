//go:build linux

package soak

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

var quiet sync.Once

// silence logs nothing.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// respFront is the front for clients of Redis.
type respFront struct{ client *redis.Client }

func newRESPFront(address string, c *connections) *respFront {
	quiet.Do(func() { redis.SetLogger(silence{}) }) // what fails is counted
	return &respFront{redis.NewClient(&redis.Options{
		Addr: address, Dialer: c.dial, Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1,
		ContextTimeoutEnabled: true, PoolSize: 128, MaxIdleConns: mostIdle, ReadTimeout: 10 * time.Second,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})}
}

func (f *respFront) close() { _ = f.client.Close() }

func (f *respFront) speaks(*request) bool { return true }

func (f *respFront) do(ctx context.Context, r *request) answer {
	c := r.charges[0]
	args := []any{"WEIR.TAKE", c.policy, c.key, c.n}
	switch r.verb {
	case take:
	case takeAll:
		args = args[:0]
		args = append(args, "WEIR.TAKEALL")
		for _, c := range r.charges {
			args = append(args, c.policy, c.key, c.n)
		}
	case reserve:
		args[0] = "WEIR.RESERVE"
		args = append(args, "EXPIRE", r.expires.Milliseconds())
	case commit:
		args = []any{"WEIR.COMMIT", r.id, r.actual}
	case cancel:
		args = []any{"WEIR.CANCEL", r.id}
	case refund:
		args[0] = "WEIR.REFUND"
	case resets:
		args = []any{"WEIR.RESET", c.policy, c.key}
	}
	if r.wait > 0 {
		args = append(args, "WAIT", r.wait.Milliseconds())
	}
	got, err := f.client.Do(ctx, args...).Result()
	if err != nil {
		return f.failed(r, err)
	}
	return f.read(r, got)
}

// failed tells what is an answer of the server, and what of the network.
func (f *respFront) failed(r *request, err error) answer {
	var reply redis.Error
	if !errors.As(err, &reply) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrClosed) {
		return failed(err)
	}
	switch word, _, _ := strings.Cut(err.Error(), " "); word {
	case "UNAVAILABLE", "CLOSED", "TOOMANY":
		return answer{outcome: unknown, reason: reasonUnavailable}
	case "NOHOLD":
		return answer{outcome: refused, reason: "no such reservation"}
	}
	return answer{outcome: wrong, reason: fmt.Sprintf("%v: %v", r.charges[0].policy, err)}
}

func (f *respFront) read(r *request, got any) answer {
	switch r.verb {
	case commit, cancel, resets:
		return answer{outcome: granted, reason: reasonNone}
	case takeAll:
		list, ok := got.([]any)
		if !ok || len(list) != 3 {
			break
		}
		answers, _ := list[2].([]any)
		if list[0] == int64(0) {
			return answer{outcome: granted, reason: reasonNone}
		}
		if at, _ := list[1].(int64); at >= 0 && int(at) < len(answers) {
			return respAnswer(answers[at])
		}
	case refund:
		if a := respAnswer(got); a.outcome != wrong {
			return answer{outcome: granted, reason: reasonNone}
		}
	case take, reserve:
		return respAnswer(got)
	}
	return answer{outcome: wrong, reason: fmt.Sprintf("%v", got)}
}

// respAnswer reads the reply to a command that takes permits.
func respAnswer(got any) answer {
	list, _ := got.([]any)
	if len(list) != 7 && len(list) != 9 {
		return answer{outcome: wrong, reason: fmt.Sprintf("%v", got)}
	}
	allowed, _ := list[0].(int64)
	reason, _ := list[5].(string)
	a := said(allowed == 0, reason)
	a.binding, _ = list[6].(string)
	after, _ := list[3].(int64)
	a.retryAfter = time.Duration(after) * time.Millisecond
	if len(list) == 9 {
		a.id, _ = list[7].(string)
		expires, _ := list[8].(int64)
		a.expires = time.Duration(expires) * time.Millisecond
	}
	return a
}
