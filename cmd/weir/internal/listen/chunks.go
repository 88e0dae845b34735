package listen

import "net/http"

// EndOfChunks makes a connection end with the answer to a request whose body came in chunks. The request may have said how long
// it is as well: net/http goes by the chunks and does not tell. A proxy that has passed it on and goes by the length takes what
// follows the chunks for a part of the body. An answer to that could reach another client (RFC 9112, 6.1).
func EndOfChunks(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 { // never in HTTP/2
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
