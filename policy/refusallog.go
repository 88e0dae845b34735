package policy

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir"
)

// RefusalLogOptions configure a [RefusalLog].
type RefusalLogOptions struct {
	// Logger gets the refusals, at level Info. Required.
	Logger *slog.Logger
	// Rate is how many refusals of a policy are logged in the long run, the first of a policy at once, and at most its permits in
	// a row. The next one that is logged has the number of those that were not. Default: 1/s.
	Rate weir.Rate
	// Keys is how keys and clients are logged. Default: KeysHashed.
	Keys LoggedKeys
	// Secret makes hashes of keys, so that those without it cannot find out keys by hashing all of them: from 16 to 1024 bytes.
	// The same secret makes the same hashes in all processes. Default: one by chance, for this process.
	Secret []byte
	// Clock replaces the monotonic clock of the process. Default: nil.
	Clock weir.Clock
}

// LoggedKeys is how keys appear in a log.
type LoggedKeys uint8

const (
	// KeysHashed logs the first 16 hex digits of HMAC-SHA-256 of them.
	KeysHashed LoggedKeys = iota
	// KeysPlain logs them as they are, quoted by the handler of the log, the first 1024 bytes of them.
	KeysPlain
	// KeysNone does not log them.
	KeysNone

	loggedKeys
)

// String is "hashed", "plain" or "none".
func (k LoggedKeys) String() string { return nameIn(loggedKeysNames[:], k, "LoggedKeys") }

var loggedKeysNames = [loggedKeys]string{"hashed", "plain", "none"}

// UnmarshalText is the inverse of String.
func (k *LoggedKeys) UnmarshalText(text []byte) error {
	return findName(loggedKeysNames[:], k, text, "form of keys")
}

// MarshalText is String.
func (k LoggedKeys) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// RefusalLog logs why requests are refused, a sample of them. Its Refused is for [EngineOptions.OnRefused]. All methods are safe
// for concurrent use.
//
// A line has the policy, the limit and the rule of the refusal, its reason, the cost, what remained, and how many refusals of
// this policy were not logged since the line before it. retry_after is a duration such as 1h0m0s or 250ms, or never, as text in
// every format. A refusal that is not logged costs some 50 ns, and no allocation (TestRefusalsThatAreNotLoggedAllocateNothing).
// The zero RefusalLog is not usable: call [NewRefusalLog].
type RefusalLog struct {
	o RefusalLogOptions

	mu       sync.RWMutex
	policies map[string]*loggedPolicy
	others   *loggedPolicy
}

// loggedPolicy is how much of a policy is logged.
type loggedPolicy struct {
	bucket   *weir.Limiter
	unlogged atomic.Uint64
}

// How many bytes of what a client has chosen are logged.
const (
	longestLoggedKey    = 1024
	longestLoggedMethod = 64
)

// mostLoggedPolicies is how many policies are logged each on its own: names of policies come and go with reloads. Others
// share one place.
const mostLoggedPolicies = 4096

// NewRefusalLog returns a log, or an *[weir.OptionError].
func NewRefusalLog(o RefusalLogOptions) (*RefusalLog, error) {
	refuse := func(option, value, accepted string) (*RefusalLog, error) {
		return nil, &weir.OptionError{Option: "RefusalLogOptions." + option, Value: value, Accepted: accepted}
	}
	if o.Logger == nil {
		return refuse("Logger", "nil", "a logger")
	}
	if o.Keys >= loggedKeys {
		return refuse("Keys", o.Keys.String(), "hashed, plain or none")
	}
	if o.Secret != nil && (len(o.Secret) < 16 || len(o.Secret) > 1024) {
		return refuse("Secret", strconv.Itoa(len(o.Secret))+" bytes", "from 16 to 1024 bytes, or nil")
	}
	if o.Rate == (weir.Rate{}) {
		o.Rate = weir.PerSecond(1)
	}
	if o.Secret == nil {
		o.Secret = make([]byte, sha256.Size)
		_, _ = rand.Read(o.Secret) // never fails
	} else {
		o.Secret = append([]byte(nil), o.Secret...)
	}
	l := &RefusalLog{o: o, policies: map[string]*loggedPolicy{}}
	var err error
	l.others, err = l.place()
	if wrong, ok := errors.AsType[*weir.OptionError](err); ok { // of the bucket
		return refuse("Rate", wrong.Value, wrong.Accepted)
	}
	return l, err
}

func (l *RefusalLog) place() (*loggedPolicy, error) {
	b, err := weir.New(weir.TokenBucket(l.o.Rate, 0), weir.Options{Name: "refusal log", Clock: l.o.Clock})
	return &loggedPolicy{bucket: b}, err
}

// of is the place of a policy, made if there is none yet.
func (l *RefusalLog) of(policy string) *loggedPolicy {
	l.mu.RLock()
	p := l.policies[policy]
	l.mu.RUnlock()
	if p != nil {
		return p
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := l.policies[policy]; other != nil {
		return other
	}
	if len(l.policies) == mostLoggedPolicies {
		return l.others
	}
	p, err := l.place()
	if err != nil {
		return l.others // it could be made with these options before
	}
	l.policies[policy] = p
	return p
}

// Refused logs a refusal, or counts it. It returns 0, as a log has no IDs.
func (l *RefusalLog) Refused(requests []*Request, v *Verdict) uint64 {
	policy := v.Decision().Policy
	if p, ok := v.BindingPart(); ok {
		policy = p.Policy.Name
	}
	place := l.of(policy)
	if !place.bucket.Allow() {
		place.unlogged.Add(1)
		return 0
	}
	ctx := context.Background()
	if len(requests) > 0 && requests[0].Context != nil {
		ctx = requests[0].Context
	}
	if !l.o.Logger.Enabled(ctx, slog.LevelInfo) {
		place.unlogged.Add(1)
		return 0
	}
	l.o.Logger.LogAttrs(ctx, slog.LevelInfo, "request refused", l.line(requests, v, policy, place.unlogged.Swap(0))...)
	return 0
}

// line is what is logged of a refusal.
func (l *RefusalLog) line(requests []*Request, v *Verdict, policy string, unlogged uint64) []slog.Attr {
	d := v.Decision()
	part, bound := v.BindingPart()
	line := make([]slog.Attr, 0, 16)
	if policy != "" {
		line = append(line, slog.String("policy", policy))
	}
	line = append(line, slog.String("reason", d.Reason.String()))
	retry := "never"
	if d.RetryAfter != weir.Never {
		retry = d.RetryAfter.String() // with its unit in every form of log: JSON would have a number of nanoseconds
	}
	line = append(line, slog.String("retry_after", retry))
	if bound {
		line = append(line, slog.String("limit", part.Policy.Limits[part.Limit].Name))
		if part.Rule != nil {
			line = append(line, slog.String("rule", part.Rule.Name))
		}
		line = append(line, slog.Int64("cost", part.Cost), slog.Int64("remaining", d.Remaining), slog.Int64("max", d.Limit))
		line = l.appendKey(line, "key", string(part.Key))
	}
	if len(requests) > 0 {
		at := 0
		if bound && part.Request < len(requests) {
			at = part.Request
		}
		if rule, i := v.denial(); rule != nil && i < len(requests) {
			at, line = i, append(line, slog.String("rule", rule.Name))
		}
		r := requests[at]
		if r.Method != "" {
			line = append(line, slog.String("method", r.Method[:min(len(r.Method), longestLoggedMethod)]))
		}
		if r.Client != (netip.Addr{}) {
			line = l.appendKey(line, "client", r.Client.Unmap().String())
		}
	}
	if len(requests) > 1 {
		line = append(line, slog.Int("requests", len(requests)))
	}
	return append(line, slog.Uint64("unlogged", unlogged))
}

func (l *RefusalLog) appendKey(line []slog.Attr, name, key string) []slog.Attr {
	switch l.o.Keys {
	case KeysPlain:
		return append(line, slog.String(name, key[:min(len(key), longestLoggedKey)]))
	case KeysHashed:
		return append(line, slog.String(name, l.Hash(key)))
	case KeysNone, loggedKeys:
	}
	return line
}

// Hash is the form of a key in the log under [KeysHashed], to look for it there.
func (l *RefusalLog) Hash(key string) string {
	h := hmac.New(sha256.New, l.o.Secret)
	h.Write([]byte(key))
	return hex.EncodeToString(h.Sum(nil)[:8])
}
