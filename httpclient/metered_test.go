package httpclient_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httpclient"
)

// TestMeteredAPIPreset sends requests as fast as it can through the preset.
func TestMeteredAPIPreset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, err := httpclient.MeteredAPI(httpclient.MeteredAPIOptions{LookupEnv: func(string) (string, bool) { return "", false }})
		if err != nil {
			t.Fatal(err)
		}
		if o.MaxWait != 30*time.Second {
			t.Errorf("MaxWait is %v", o.MaxWait)
		}
		o.MaxWait = 31 * time.Second // not exactly the turn of the ninth
		s := newScript(answering(200))
		rt := transport(t, o, s.serve)
		var wait sync.WaitGroup
		var mu sync.Mutex
		failed := 0
		for range 10 {
			wait.Go(func() {
				_, err := fetchFrom(t.Context(), rt, apiURL)
				if limited, ok := errors.AsType[*httpclient.LimitedError](err); ok && limited.Limit == "metered-api" &&
					limited.Reason == weir.ReasonDeadline && limited.RetryAfter == 37500*time.Millisecond {
					mu.Lock()
					defer mu.Unlock()
					failed++
				}
			})
		}
		wait.Wait()
		ms := time.Millisecond
		expectTimes(t, s.times(), 0, 0, 0, 0, 0, 7500*ms, 15000*ms, 22500*ms, 30000*ms)
		if failed != 1 {
			t.Errorf("%d failed at once, want the one that would wait for 37.5 s", failed)
		}
	})
}

func TestMeteredAPIEnvironment(t *testing.T) {
	for _, c := range []struct {
		burst, perMinute string
		wantBurst        int64
		wantWindow       time.Duration // in which the burst is regained
		warnings         []string
	}{
		{"", "", 5, 37500 * time.Millisecond, nil},
		{"50", "1000", 50, 3 * time.Second, nil},
		{"1", "0.5", 1, 2 * time.Minute, nil},
		{"6", "1e1", 6, 36 * time.Second, nil},
		{"many", "8", 5, 37500 * time.Millisecond, []string{"GEMINI_BURST"}},
		{"5.5", "fast", 5, 37500 * time.Millisecond, []string{"GEMINI_BURST", "GEMINI_TOKENS_PER_MINUTE"}},
		{"0", "0", 5, 37500 * time.Millisecond, []string{"GEMINI_BURST", "GEMINI_TOKENS_PER_MINUTE"}},
		{"-1", "-8", 5, 37500 * time.Millisecond, []string{"GEMINI_BURST", "GEMINI_TOKENS_PER_MINUTE"}},
		{"9999999999999999999", "NaN", 5, 37500 * time.Millisecond, []string{"GEMINI_BURST", "GEMINI_TOKENS_PER_MINUTE"}},
		{"5", "Inf", 5, 37500 * time.Millisecond, []string{"GEMINI_TOKENS_PER_MINUTE"}},
	} {
		var log bytes.Buffer
		env := map[string]string{"GEMINI_BURST": c.burst, "GEMINI_TOKENS_PER_MINUTE": c.perMinute}
		o, err := httpclient.MeteredAPI(httpclient.MeteredAPIOptions{
			LookupEnv: func(name string) (string, bool) { value, ok := env[name]; return value, ok },
			Logger:    slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		bucket, ok := o.Limiter.(*weir.Limiter)
		if !ok {
			t.Fatalf("a %T", o.Limiter)
		}
		if burst, window := bucket.Limit().Quota(); burst != c.wantBurst || window != c.wantWindow || o.MaxWait != 30*time.Second {
			t.Errorf("%q, %q: %d in %v, want %d in %v", c.burst, c.perMinute, burst, window, c.wantBurst, c.wantWindow)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != len(c.warnings) {
			t.Errorf("%q, %q: %d warnings: %s", c.burst, c.perMinute, n, log.String())
		}
		for _, name := range c.warnings {
			if !strings.Contains(log.String(), "name="+name) {
				t.Errorf("%q, %q: no warning of %s: %s", c.burst, c.perMinute, name, log.String())
			}
		}
	}
}

// TestMeteredAPIReadsNoEnvironment unless it is asked to: then the variables of the preset, or those that are named.
func TestMeteredAPIReadsNoEnvironment(t *testing.T) {
	t.Setenv("GEMINI_BURST", "2")
	t.Setenv("GEMINI_TOKENS_PER_MINUTE", "1")
	t.Setenv("MY_BURST", "3")
	for _, c := range []struct {
		o    httpclient.MeteredAPIOptions
		want int64
	}{
		{httpclient.MeteredAPIOptions{}, 5},
		{httpclient.MeteredAPIOptions{Burst: 7}, 7},
		{httpclient.MeteredAPIOptions{PerMinuteVariable: "MY_RATE"}, 5},
		{httpclient.MeteredAPIOptions{BurstVariable: "MY_BURST"}, 3},
		{httpclient.MeteredAPIOptions{LookupEnv: os.LookupEnv}, 2},
	} {
		o, err := httpclient.MeteredAPI(c.o)
		if err != nil {
			t.Fatal(err)
		}
		if d := o.Limiter.Peek(1); d.Limit != c.want {
			t.Errorf("%+v: the limit is %d, want %d", c.o, d.Limit, c.want)
		}
	}
}

func TestMeteredAPIOptions(t *testing.T) {
	t.Setenv("MY_BURST", "2")
	t.Setenv("MY_RATE", "60")
	o, err := httpclient.MeteredAPI(httpclient.MeteredAPIOptions{
		Name: "mine", BurstVariable: "MY_BURST", PerMinuteVariable: "MY_RATE", Burst: 9, PerMinute: 9,
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := o.Limiter.Peek(1); d.Limit != 2 || d.Policy != "mine" {
		t.Errorf("%+v", d)
	}
	for want, o := range map[string]httpclient.MeteredAPIOptions{
		"MeteredAPIOptions.Burst is -1":       {Burst: -1},
		"MeteredAPIOptions.PerMinute is -0.5": {PerMinute: -0.5},
	} {
		if _, err := httpclient.MeteredAPI(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
