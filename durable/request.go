package durable

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

const (
	// DefaultQueueLimit is how many permits can be waited for where a request does not say.
	DefaultQueueLimit = 10_000
	// DefaultTimeout is how long a caller waits whose context has no deadline.
	DefaultTimeout = 30 * time.Second
	// MaxWait is the max time that a request can wait.
	MaxWait = 24 * time.Hour
)

// Request is a request for permits.
type Request struct {
	// Policy and Key are the limit and who shares it: from 1 to 256, and from 0 to 1024 bytes.
	Policy, Key string
	// Limit is the limit. It comes with each request, and that of the last one counts.
	Limit weir.Limit
	// N is how many permits are asked for, from 0 to 10^15. 0 is a probe: it is allowed as soon as at least one permit is
	// available, and takes nothing.
	N int64
	// Wait is how long the request may wait, from 0, which is not at all, to 24 h. It is a duration, so that the clocks of
	// callers do not count.
	Wait time.Duration
	// QueueLimit is how many permits can be waited for, those of this request included: from 0 to 10^15.
	QueueLimit int64
	// Reserve makes the request a reservation that expires after this time, from 1 ms to 24 h. Default: 0, permits are
	// taken for good.
	Reserve time.Duration
}

// check returns what is wrong with a request, or nil.
func (r *Request) check() error {
	charges := [1]store.Charge{{Policy: r.Policy, Key: r.Key, Limit: r.Limit, N: r.N}}
	if err := store.Check(store.Ask{Mode: store.ModeRefund}, charges[:], nil); err != nil {
		return fmt.Errorf("%w", err)
	}
	switch {
	case r.Wait < 0 || r.Wait > MaxWait:
		return &weir.OptionError{Option: "Request.Wait", Value: r.Wait.String(), Accepted: "from 0 to 24h"}
	case r.QueueLimit < 0 || r.QueueLimit > maxRecordAhead:
		return &weir.OptionError{
			Option: "Request.QueueLimit", Value: fmt.Sprint(r.QueueLimit), Accepted: "from 0 to 10^15 permits",
		}
	case r.Reserve != 0:
		if r.Reserve < store.LeastExpiry || r.Reserve > store.MostExpiry {
			return &weir.OptionError{Option: "Request.Reserve", Value: r.Reserve.String(), Accepted: "from 1ms to 24h"}
		}
	case r.Limit.Algorithm() == weir.AlgorithmConcurrency:
		return &weir.OptionError{
			Option: "Request.Reserve", Value: "0",
			Accepted: "from 1ms to 24h for a concurrency limit, whose permits come back when it ends",
		}
	}
	return nil
}

// recordKey is what a record is kept under.
func recordKey(policy, key string) string {
	return string(appendRecordKey(make([]byte, 0, 4+len(policy)+len(key)), policy, key))
}

// recordPolicy is the policy of the key that a record is kept under.
func recordPolicy(name string) string {
	length, rest, _ := strings.Cut(name, ":")
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || n > len(rest) {
		return name
	}
	return rest[:n]
}

func appendRecordKey(b []byte, policy, key string) []byte {
	b = append(strconv.AppendInt(b, int64(len(policy)), 10), ':')
	return append(append(b, policy...), key...)
}
