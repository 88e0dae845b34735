// Perclient is a server of which each client may send 20 requests at once, and 10 a second for ever.
package main

import (
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
)

func main() {
	fmt.Fprintln(os.Stderr, serve())
	os.Exit(1)
}

func serve() error {
	perClient, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(10), 20), weir.KeyedOptions{Name: "per-client"})
	if err != nil {
		return err
	}
	limit, err := httplimit.New(httplimit.Options{Keyed: perClient})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: limit(mux), ReadHeaderTimeout: 10 * time.Second}
	return server.ListenAndServe()
}
