package httplimit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/ratelimitfields"
)

func TestOptionsThatCannotBeUsed(t *testing.T) {
	limiter, keyed := bucket(t, weir.TokenBucket(weir.Rate{}, 0), weir.Options{}), perClient(t, 1)
	same, err := weir.NewChain(bucket(t, weir.TokenBucket(weir.Rate{}, 0), weir.Options{}), bucket(t, weir.TokenBucket(weir.Rate{}, 0), weir.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]httplimit.Options{
		"Options.Limiter is nil":                                {},
		"Options.Limiter is a nil *weir.Limiter":                {Limiter: (*weir.Limiter)(nil)},
		"Options.Keyed is a nil *weir.Keyed[string]":            {Keyed: (*weir.Keyed[string])(nil)},
		"Options.Keyed is set beside Limiter":                   {Limiter: limiter, Keyed: keyed},
		"Options.Key is set":                                    {Limiter: limiter, Key: constant("")},
		"Options.MaxWait is -1s":                                {Limiter: limiter, MaxWait: -time.Second},
		"Options.MaxWait is 1s":                                 {Keyed: &recordingKeyed{}, MaxWait: time.Second},
		"Options.Status is 200":                                 {Limiter: limiter, Status: 200},
		"Options.Status is 600":                                 {Limiter: limiter, Status: 600},
		"Headers.Jitter is -1ns":                                {Limiter: limiter, Headers: ratelimitfields.Headers{Jitter: -1}},
		`Policies[1].Name is "default": must be different from`: {Limiter: same},
		`Policies[0].Name "ü" has the byte`:                     {Limiter: bucket(t, weir.TokenBucket(weir.Rate{}, 0), weir.Options{Name: "ü"})},
	} {
		if _, err := httplimit.New(o); err == nil || !strings.HasPrefix(err.Error(), "weir: ") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want an error about %s", err, want)
		}
	}
}

func TestNilHandler(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a nil handler is found out only when it is called")
		}
	}()
	limit(t, httplimit.Options{Limiter: bucket(t, weir.TokenBucket(weir.Rate{}, 0), weir.Options{})})(nil)
}
