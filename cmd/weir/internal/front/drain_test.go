package front

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestDrainWaitsForThoseInFlight: requests that come during the shutdown are served, and not waited for.
func TestDrainWaitsForThoseInFlight(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	d := newDrain(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			entered <- struct{}{}
			<-leave
		}
	}))
	serve := func(path string) {
		d.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	}
	serve("/")
	var done sync.WaitGroup
	for range 2 {
		done.Go(func() { serve("/slow") })
		<-entered
	}
	inFlight, idle := d.begin()
	if inFlight != 2 || isClosed(idle) {
		t.Errorf("%d in flight, idle %t", inFlight, isClosed(idle))
	}
	serve("/")
	if isClosed(idle) {
		t.Error("idle when a late request is served")
	}
	leave <- struct{}{}
	serve("/")
	if isClosed(idle) {
		t.Error("idle with one request in flight")
	}
	late := make(chan struct{})
	go func() {
		serve("/slow")
		close(late)
	}()
	<-entered
	leave <- struct{}{}
	leave <- struct{}{}
	done.Wait()
	<-late
	<-idle
}

func TestDrainOfNothingIsIdleAtOnce(t *testing.T) {
	d := newDrain(http.NotFoundHandler())
	d.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	if inFlight, idle := d.begin(); inFlight != 0 || !isClosed(idle) {
		t.Errorf("%d in flight, idle %t", inFlight, isClosed(idle))
	}
	d.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
}
