package proxy_test

import (
	"net/http"
	"reflect"
	"strconv"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/proxy"
)

func TestConcurrency(t *testing.T) {
	arrived, release := make(chan string, 10), make(chan struct{})
	p := start(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- r.URL.Path
		select {
		case <-release:
		case <-r.Context().Done():
		}
		ok(w, r)
	}), func(o *proxy.Options) { o.Concurrency, o.Queue = 2, 3 })
	done := make(chan int, 10)
	send := func(path string) {
		go func() {
			status := 0
			if req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+path, http.NoBody); err == nil {
				if res, err := p.client.Do(req); err == nil {
					_ = res.Body.Close()
					status = res.StatusCode
				}
			}
			done <- status
		}()
	}
	for i := range 2 {
		send("/" + strconv.Itoa(i))
		receive(t, arrived, "a request")
	}
	for i := range 3 {
		send("/" + strconv.Itoa(i+2))
		until(t, "the request to wait", func() bool { return p.Concurrency().Waiters == i+1 })
	}
	res := p.get(t, "/5")
	if got := problemOf(t, res); res.StatusCode != http.StatusServiceUnavailable || got.Type != reducedCapacity ||
		!reflect.DeepEqual(got.Policies, []string{"concurrency"}) {
		t.Errorf("the sixth request: %s %+v", res.Status, got)
	}
	for i := range 3 {
		release <- struct{}{}
		if got, want := receive(t, arrived, "the next request"), "/"+strconv.Itoa(i+2); got != want {
			t.Errorf("%s came at the turn of %s", got, want)
		}
	}
	close(release)
	for range 5 {
		if status := receive(t, done, "an answer"); status != http.StatusOK {
			t.Errorf("status %d", status)
		}
	}
	until(t, "all places to be free", func() bool { return p.Concurrency().Remaining == 2 })
	p.expectTotals(t, proxy.Totals{Allowed: 5, OverConcurrency: 1})
}

func TestConcurrencyWithoutQueue(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	p := start(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-release
		ok(w, r)
	}), func(o *proxy.Options) { o.Concurrency = 1 })
	done := make(chan answer, 1)
	req := request(t, http.MethodGet, p.url, nil)
	go func() { done <- p.do(t, req) }()
	receive(t, arrived, "the request")
	if res := p.get(t, "/"); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%s, want 503", res.Status)
	}
	close(release)
	if res := receive(t, done, "the answer"); res.StatusCode != http.StatusOK {
		t.Errorf("%s, want 200", res.Status)
	}
}
