package rlqsapi

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitquotav3"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlqsapi/quotashare"
	"github.com/weirhq/weir/policy"
)

// bucket is one bucket of one proxy.
type bucket struct {
	stream  *stream
	id      *ratelimitquotav3.BucketId
	key     string
	request policy.Request
	holding holding
	share   *quotashare.Share
	pending int64 // requests that were allowed and are not charged yet
}

// holding is what a bucket is held to.
type holding struct {
	needs []quotashare.Need
	deny  bool
	// charge says that what proxies allow can be charged to the engine.
	charge bool
}

const (
	protocol = "rlqs"

	mostEntries = 64
	mostBytes   = 4096
	mostDomain  = 256
)

// identify returns a text that is the same for all ids with the same entries.
func identify(id *ratelimitquotav3.BucketId) (string, error) {
	entries := id.GetBucket()
	if len(entries) == 0 || len(entries) > mostEntries {
		return "", fmt.Errorf("weir: bucket_id of %d entries: must have from 1 to %d", len(entries), mostEntries)
	}
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(entries)) {
		v := entries[k]
		if k == "" || v == "" {
			return "", fmt.Errorf("weir: bucket_id: entry %.40q of %.40q: neither may be empty", k, v)
		}
		if b.Len()+len(k)+len(v) > mostBytes {
			return "", fmt.Errorf("weir: bucket_id of more than %d bytes: must have at most as many", mostBytes)
		}
		b.WriteString(strconv.Itoa(len(k)))
		b.WriteByte(':')
		b.WriteString(k)
		b.WriteString(strconv.Itoa(len(v)))
		b.WriteByte(':')
		b.WriteString(v)
	}
	return b.String(), nil
}

// requestOf is the request that a bucket stands for.
func requestOf(ctx context.Context, domain string, id *ratelimitquotav3.BucketId) policy.Request {
	entries := id.GetBucket()
	r := policy.Request{Protocol: protocol, Host: domain, Attributes: entries, Context: ctx}
	for _, k := range slices.Sorted(maps.Keys(entries)) {
		r.Path += "/" + k
	}
	for _, k := range []string{"remote_address", "client_ip", "masked_remote_address"} {
		if r.Client = ClientOf(k, entries[k]); r.Client.IsValid() {
			break
		}
	}
	return r
}

// ClientOf is the address of the client, if an entry of a descriptor or of a bucket tells it, the zero Addr otherwise.
func ClientOf(key, value string) netip.Addr {
	switch key {
	case "remote_address", "client_ip":
		if a, err := netip.ParseAddr(value); err == nil {
			return a.Unmap()
		}
	case "masked_remote_address":
		if p, err := netip.ParsePrefix(value); err == nil {
			return p.Addr().Unmap()
		}
	}
	return netip.Addr{}
}

// lookUp finds what a bucket is held to.
func (s *Service) lookUp(b *bucket) (h holding) {
	engine := s.o.Limits.Engine()
	r := b.request
	x := engine.Explain(&r)
	h.charge = true
	switch {
	case x.Exempt:
		return h
	case x.Denied != "":
		h.deny, h.charge = true, false
		return h
	}
	set := engine.Set()
	for i := range x.Limits {
		l := &x.Limits[i]
		if l.Role != "enforce" {
			continue
		}
		p := policyOf(set, l.Policy)
		if p == nil {
			continue // it has been removed a moment ago: the next look will see
		}
		limit, err := s.limitOf(p, l)
		if err == nil {
			h.needs = append(h.needs, quotashare.Need{Key: accountOf(l.Policy, l.Limit, l.Key), Limit: limit})
			continue
		}
		if l.Cost == 0 && l.Failure == "" {
			continue
		}
		h.charge = false
		if p.Fail != policy.FailOpen {
			h.deny = true
		}
		s.warn(l.Policy, err, p.Fail)
	}
	return h
}

// warn tells that a limit cannot be assigned.
func (s *Service) warn(name string, err error, fail policy.Fail) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	if before, ok := s.warned[name]; ok && now-before < int64(time.Minute) || len(s.warned) > 10_000 {
		return
	}
	s.warned[name] = now
	does := "all requests are refused"
	if fail == policy.FailOpen {
		does = "the policy is left out"
	}
	s.o.Logger.Warn("a limit cannot be assigned in advance", "policy", name, "error", s.o.Limits.Clean(err.Error()),
		"fail", fail.String(), "so", does)
}

// accountOf names an account.
func accountOf(name, limit, key string) string { return name + "\x00" + limit + "\x00" + key }

// readable is the name of an account for people.
func readable(account string) string {
	parts := strings.SplitN(account, "\x00", 3)
	text := parts[0]
	if parts[1] != "" {
		text += "/" + parts[1]
	}
	return text + " " + strconv.Quote(parts[2])
}

func policyOf(set *policy.Set, name string) *policy.Policy {
	for i := range set.Policies {
		if set.Policies[i].Name == name {
			return &set.Policies[i]
		}
	}
	return nil
}

// limitOf is the limit that applies, as an account can keep it.
func (s *Service) limitOf(p *policy.Policy, l *policy.ExplainedLimit) (weir.Limit, error) {
	switch {
	case l.Failure != "":
		return weir.Limit{}, fmt.Errorf("weir: it cannot be told what to count: %s", l.Failure)
	case l.Cost != 1:
		return weir.Limit{}, fmt.Errorf("weir: a request costs %d: must be 1, as proxies count requests", l.Cost)
	case p.Consistency.Shared() || p.Durability != policy.DurabilityMemory && !s.o.Alone:
		return weir.Limit{}, fmt.Errorf(
			"weir: the limits are shared with other processes (consistency %v, durability %v), and each would assign all of them",
			p.Consistency, p.Durability)
	}
	return bucketOf(l.Applied)
}

// longestWindows are how long the windows of a calendar can be.
var longestWindows = map[algo.CalendarUnit]time.Duration{
	algo.CalendarMinute: time.Minute, algo.CalendarHour: 2 * time.Hour, algo.CalendarDay: 25 * time.Hour,
	algo.CalendarWeek: (7*24 + 1) * time.Hour, algo.CalendarMonth: (31*24 + 1) * time.Hour,
	algo.CalendarQuarter: (92*24 + 1) * time.Hour, algo.CalendarYear: (366*24 + 1) * time.Hour,
}

// bucketOf is the token bucket that never allows more than the limit does.
func bucketOf(l weir.Limit) (weir.Limit, error) {
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket:
		return l, nil
	case weir.AlgorithmFixedWindow, weir.AlgorithmSlidingWindow, weir.AlgorithmSlidingCounter:
		return inWindow(l.Rate().Permits, l.Rate().Period)
	case weir.AlgorithmCalendarWindow:
		if window, ok := longestWindows[l.Calendar().Unit]; ok {
			return inWindow(l.Permits(), window)
		}
	case weir.AlgorithmConcurrency:
	}
	return weir.Limit{}, fmt.Errorf("weir: %v: proxies cannot be assigned a limit of this kind", l)
}

// inWindow is a bucket of which any window has at most n permits: a tenth of them at once, and the others evenly. Less time than
// the window passes within it, so less than n + 1 permits do, which is n of whole ones.
func inWindow(n int64, window time.Duration) (weir.Limit, error) {
	burst := max(n/10, 1)
	l := weir.TokenBucket(weir.Rate{Permits: n - burst + 1, Period: window}, burst)
	return l, l.Check()
}
