// Package adminguard lets in only those who may look at the state of the server and change it, and logs what they change.
package adminguard

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

// Options configure a [Guard].
type Options struct {
	// Tokens are those that let in, as "Authorization: Bearer TOKEN". Default: none.
	Tokens []Token
	// TokensNow returns those of the moment in place of Tokens, at least one each time. Default: nil, they stay as they are.
	TokensNow func() []Token
	// Certificate returns the name in the certificate of a connection, and whether it lets in. Default: nil, none does.
	Certificate func(*tls.ConnectionState) (name string, ok bool)
	// Local says that the server listens on a loopback address only. Without Tokens and Certificate it lets in every request
	// that reaches it, but for two kinds: of a page that a browser has loaded from elsewhere, and those that a proxy forwards.
	Local bool
	// Rate and Burst are how often an address may ask. An IPv6 address counts with all of its /64. Default: 20/s, and 100.
	Rate  weir.Rate
	Burst int64
	// LoginFailed is called for a caller with a wrong token, and the path that it asked for, percent-encoded: a terminal would
	// obey it in a log otherwise. Default: nil.
	LoginFailed func(from netip.Addr, path string)
	// Clock replaces the monotonic clock of the process. Default: nil.
	Clock weir.Clock
}

// How often a wrong token may be shown by an address: so many at once, one each so long.
const (
	wrongBurst = 10
	wrongEvery = 2 * time.Second
)

// mostAddresses is how many addresses are known at a time.
const mostAddresses = 1 << 16

// perAddress is a *weir.Keyed[netip.Addr]. With that type in a field of Guard, whatever imports this package would compile it
// again.
type perAddress interface {
	Take(from netip.Addr, n int64) weir.Decision
	Refund(from netip.Addr, n int64)
}

// Guard decides who may use the admin pages, as its options say. It is safe for concurrent use. A nil Guard lets in no caller.
type Guard struct {
	o     Options
	asked perAddress
	wrong perAddress

	entered, unauthorized, limited atomic.Uint64
}

// Counts are how many requests were let in, or not.
type Counts struct {
	// Entered counts those that were let in, Unauthorized those that were not, Limited those that asked too often, or too
	// often with a wrong token.
	Entered, Unauthorized, Limited uint64
}

// Counts returns them.
func (g *Guard) Counts() Counts {
	return Counts{g.entered.Load(), g.unauthorized.Load(), g.limited.Load()}
}

// New returns a guard. The error is that of the limits.
func New(o Options) (*Guard, error) {
	if o.Rate == (weir.Rate{}) {
		o.Rate, o.Burst = weir.PerSecond(20), 100
	}
	g := &Guard{o: o}
	var err error
	// A caller for whom the table has no room is let through: this limit bounds work. The other one keeps out callers that
	// guess.
	g.asked, err = weir.NewKeyed[netip.Addr](weir.TokenBucket(o.Rate, o.Burst), weir.KeyedOptions{
		Name: "admin", MaxKeys: mostAddresses, AdmitWhenFull: true, Clock: o.Clock,
	})
	if err != nil {
		return nil, fmt.Errorf("weir: admin: %w", err)
	}
	g.wrong, err = weir.NewKeyed[netip.Addr](weir.TokenBucket(weir.Per(1, wrongEvery), wrongBurst), weir.KeyedOptions{
		Name: "admin-login", MaxKeys: mostAddresses, Clock: o.Clock,
	})
	if err != nil {
		return nil, fmt.Errorf("weir: admin: %w", err)
	}
	return g, nil
}

// Caller is the caller of a request that was let in.
type Caller struct {
	// Who is the name of the token or of the certificate, "local" if none is needed.
	Who string
	// From is the address.
	From string
}

// Network is whose address a caller has, as far as that is known: that of an IPv6 address is all of its /64.
func (c Caller) Network() string {
	a, err := netip.ParseAddr(c.From)
	if err != nil {
		return c.From
	}
	return group(a).String()
}

type callerKey struct{}

// CallerOf returns the caller of a request that was let in, or the zero Caller.
func CallerOf(r *http.Request) Caller {
	c, _ := r.Context().Value(callerKey{}).(Caller)
	return c
}

// WrongKey is the problem with a key of a request of an operator, nil if there is none.
func WrongKey(key string) *answer.Problem {
	if len(key) <= operator.MostKey {
		return nil
	}
	return answer.BadField(http.StatusBadRequest, "key", answer.Excerpt(key),
		`must be a string of at most 1024 bytes, where \xe9 is the byte e9 of a key that is not UTF-8`)
}

// sameOrigin knows requests that a page of another origin makes a browser send.
var sameOrigin = http.NewCrossOriginProtection()

// Enter returns the request with its [Caller], or why it may not be answered.
func (g *Guard) Enter(w http.ResponseWriter, r *http.Request) (*http.Request, *answer.Problem) {
	if g == nil {
		return nil, closed(r)
	}
	in, p := g.enter(w, r)
	switch {
	case p == nil:
		g.entered.Add(1)
	case p.Status == http.StatusTooManyRequests:
		g.limited.Add(1)
	default:
		g.unauthorized.Add(1)
	}
	return in, p
}

func (g *Guard) enter(w http.ResponseWriter, r *http.Request) (*http.Request, *answer.Problem) {
	from := addressOf(r)
	if d := g.asked.Take(group(from), 1); !d.Allowed {
		return nil, tooMany(w, d, "this address asks too often: admin pages are answered at %s, burst %d", g.o.Rate, g.o.Burst)
	}
	who, p := g.who(w, r, from)
	if p != nil {
		return nil, p
	}
	if err := sameOrigin.Check(r); err != nil {
		return nil, answer.BadField(http.StatusForbidden, "Origin", answer.Excerpt(r.Header.Get("Origin")),
			"must be that of the server")
	}
	c := Caller{Who: who, From: from.String()}
	if !from.IsValid() {
		c.From = r.RemoteAddr
	}
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, c)), nil
}

// who asks.
func (g *Guard) who(w http.ResponseWriter, r *http.Request, from netip.Addr) (string, *answer.Problem) {
	if g.o.Certificate != nil && r.TLS != nil {
		if name, ok := g.o.Certificate(r.TLS); ok {
			return name, nil
		}
	}
	switch {
	case g.hasTokens():
		return g.token(w, r, from)
	case g.o.Certificate != nil:
		return "", answer.PlainProblem(http.StatusForbidden,
			"%s needs a client certificate of the authorities of --admin-client-ca", r.URL.Path)
	case !g.o.Local:
		return "", closed(r)
	case !IsLocalHost(r.Host):
		// A page whose name leads to this machine is of the same origin to its browser.
		return "", answer.BadField(http.StatusForbidden, "Host", answer.Excerpt(r.Host), "must be an address or localhost")
	}
	if field := forwarded(r); field != "" {
		return "", answer.PlainProblem(http.StatusForbidden,
			"%s came through a proxy, as its field %s says, so that any client may have sent it: it needs --admin-token-file",
			r.URL.Path, field)
	}
	return "local", nil
}

func (g *Guard) hasTokens() bool { return g.o.TokensNow != nil || len(g.o.Tokens) > 0 }

func (g *Guard) tokens() []Token {
	if g.o.TokensNow != nil {
		return g.o.TokensNow()
	}
	return g.o.Tokens
}

// Knows reports whether the caller of a request that was let in would be let in now as well: its token or certificate is still
// valid. It is for answers that take long.
func (g *Guard) Knows(r *http.Request) bool {
	if g.o.Certificate != nil && r.TLS != nil {
		if _, ok := g.o.Certificate(r.TLS); ok {
			return true
		}
	}
	if !g.hasTokens() {
		return g.o.Certificate == nil
	}
	shown, _ := bearer(r)
	_, right := nameOf(g.tokens(), shown)
	return right
}

// bearer returns the token of a request, which must have exactly one: of two, a proxy in front may have checked the other one.
func bearer(r *http.Request) (token string, ok bool) {
	shown := r.Header["Authorization"]
	if len(shown) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(shown[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") { // RFC 9110, 11.1
		return "", false
	}
	return strings.TrimLeft(token, " "), true
}

// forwarded is a field by which a proxy names its client, "" if there is none.
func forwarded(r *http.Request) string {
	for _, field := range [...]string{
		"X-Forwarded-For", "Forwarded", "X-Real-Ip", "X-Forwarded-Host", "Via", "X-Forwarded-Proto", "X-Forwarded-Server",
		"X-Forwarded", "X-Original-Forwarded-For", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip",
	} {
		if len(r.Header[field]) > 0 {
			return field
		}
	}
	return ""
}

func closed(r *http.Request) *answer.Problem {
	return answer.PlainProblem(http.StatusForbidden,
		"%s is answered only if weir listens on a loopback address, or with --admin-token-file",
		r.URL.Path)
}

// token is whose token was shown. An address that has shown too many wrong ones is not even told whether another one is right.
func (g *Guard) token(w http.ResponseWriter, r *http.Request, from netip.Addr) (string, *answer.Problem) {
	shown, ok := bearer(r)
	if ok {
		// Taken first, and given back, so that no more are compared however many come at once.
		if d := g.wrong.Take(group(from), 1); !d.Allowed {
			return "", tooMany(w, d, "this address has shown too many wrong tokens")
		}
		if name, right := nameOf(g.tokens(), shown); right {
			g.wrong.Refund(group(from), 1)
			return name, nil
		}
		if g.o.LoginFailed != nil {
			g.o.LoginFailed(from, r.URL.EscapedPath())
		}
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
	return "", answer.PlainProblem(http.StatusUnauthorized,
		"%s needs the token of --admin-token-file: Authorization: Bearer TOKEN", r.URL.Path)
}

func tooMany(w http.ResponseWriter, d weir.Decision, format string, args ...any) *answer.Problem {
	w.Header().Set("Retry-After", strconv.FormatInt(int64(math.Ceil(max(d.RetryAfter, time.Second).Seconds())), 10))
	return answer.PlainProblem(http.StatusTooManyRequests, format, args...)
}

// addressOf is the address of the client, the zero address if it is not known.
func addressOf(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

// group is what an address counts with. A client that has one IPv6 address has all of its network.
func group(a netip.Addr) netip.Addr {
	if !a.Is6() {
		return a
	}
	network, err := a.Prefix(64)
	if err != nil {
		return a
	}
	return network.Addr()
}

// IsLocalHost reports whether a host is an address or localhost, with or without port. An address with a zone is none: behind the
// percent sign could be any name.
func IsLocalHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Zone() == "" || strings.EqualFold(host, "localhost")
}

// Guarded is next for callers that are let in.
func (g *Guard) Guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in, p := g.Enter(w, r)
		if p != nil {
			p.Write(w)
			return
		}
		next.ServeHTTP(w, in)
	})
}
