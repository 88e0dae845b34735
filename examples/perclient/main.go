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
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })

	perClient := httplimit.PerClient(weir.PerSecond(10), 20)
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: perClient(mux), ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	os.Exit(1)
}
