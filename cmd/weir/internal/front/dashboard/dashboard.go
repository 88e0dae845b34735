package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

//go:embed static
var static embed.FS

// Policy is the content security policy of every answer: only files of the page itself run and are shown, they talk to the server
// they came from alone, and no text can become markup (browsers that know trusted types refuse it).
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// file is one of the page.
type file struct {
	text, packed      []byte // packed is nil if the text is hardly longer
	kind, tag, length string
	packedTag         string
	packedLength      string
}

// handler serves the files, by their paths below [operator.UIPath]. It is not changed once it is made. A file is packed when
// it is first asked for: most servers are never asked for any.
type handler map[string]func() *file

// Handler returns the files of the dashboard under [operator.UIPath], to every client: they have no data. Browsers keep them,
// and ask each time whether they have changed. Everything else is 404 or 405.
func Handler() http.Handler {
	h := handler{}
	// The files are part of the program: an error is one of the program.
	err := fs.WalkDir(static, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		h[strings.TrimPrefix(name, "static/")] = sync.OnceValue(func() *file { return newFile(name) })
		return nil
	})
	if err != nil {
		panic(err)
	}
	h[""] = h["index.html"]
	return h
}

func newFile(name string) *file {
	text, err := static.ReadFile(name)
	if err != nil {
		panic(err) // it is part of the program
	}
	f := &file{text: text, kind: kind(name), length: strconv.Itoa(len(text))}
	sum := sha256.Sum256(text)
	f.tag = `"` + hex.EncodeToString(sum[:12]) + `"`
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(text) // a buffer takes everything
	_ = w.Close()
	if b.Len() < len(text)*9/10 {
		f.packed, f.packedLength = b.Bytes(), strconv.Itoa(b.Len())
		f.packedTag = `"` + hex.EncodeToString(sum[:12]) + `-gz"`
	}
	return f
}

// kind is the media type of a file. It does not depend on what the machine says of names.
func kind(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".html":
		return "text/html; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	default:
		return "text/plain; charset=utf-8"
	}
}

// ServeHTTP implements [http.Handler].
func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", Policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-cache")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "weir: a file of the dashboard is read with GET", http.StatusMethodNotAllowed)
		return
	}
	name, below := strings.CutPrefix(r.URL.Path, operator.UIPath)
	page := h[name]
	if !below || page == nil {
		http.Error(w, "weir: the dashboard has no such file: it begins at "+operator.UIPath, http.StatusNotFound)
		return
	}
	f := page()
	text, tag, length := f.text, f.tag, f.length
	header.Set("Vary", "Accept-Encoding")
	if f.packed != nil && takesGzip(r.Header.Values("Accept-Encoding")) {
		text, tag, length = f.packed, f.packedTag, f.packedLength
		header.Set("Content-Encoding", "gzip")
	}
	header.Set("ETag", tag)
	if known(r.Header.Values("If-None-Match"), tag) {
		header.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Type", f.kind)
	header.Set("Content-Length", length)
	if r.Method == http.MethodGet {
		_, _ = w.Write(text) // a client that has gone is not told
	}
}

// takesGzip reports whether a client has said that it takes gzip.
func takesGzip(fields []string) bool {
	for _, field := range fields {
		for one := range strings.SplitSeq(field, ",") {
			coding, params, err := mime.ParseMediaType(strings.TrimSpace(one))
			if err == nil && coding == "gzip" {
				q, bad := strconv.ParseFloat(params["q"], 64)
				return params["q"] == "" || bad == nil && q > 0
			}
		}
	}
	return false
}

// known reports whether a client has what tag stands for.
func known(fields []string, tag string) bool {
	for _, field := range fields {
		for one := range strings.SplitSeq(field, ",") {
			one = strings.TrimPrefix(strings.TrimSpace(one), "W/")
			if one == tag || one == "*" {
				return true
			}
		}
	}
	return false
}
