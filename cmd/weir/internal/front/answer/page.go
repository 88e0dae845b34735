package answer

import (
	"net/http"
	"strings"
)

// Page is where something is served, and by which methods: POST, or GET and HEAD.
type Page struct{ Path, Methods string }

// Get is a page that is read.
func Get(path string) Page { return Page{path, http.MethodGet + ", " + http.MethodHead} }

// Post is a page that is asked by POST.
func Post(path string) Page { return Page{path, http.MethodPost} }

// page is the page of a type that it is a part of.
func (p Page) page() Page { return p }

// IsPost reports whether a page is asked by POST.
func (p Page) IsPost() bool { return p.Methods == http.MethodPost }

// WrongMethod is the problem with a request by a method that the page does not have, nil if it has it.
func (p Page) WrongMethod(w http.ResponseWriter, r *http.Request) *Problem {
	if r.Method == p.Methods || !p.IsPost() && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		return nil
	}
	w.Header().Set("Allow", p.Methods)
	return BadField(http.StatusMethodNotAllowed, "method", Excerpt(r.Method),
		"must be "+strings.ReplaceAll(p.Methods, ", ", " or ")+" for "+p.Path)
}

// Pages finds pages, of a type that has a [Page] in it, by their paths.
type Pages[P interface{ page() Page }] struct {
	ByPath map[string]*P
	// Missing says which there are.
	Missing string
}

// NewPages returns those pages.
func NewPages[P interface{ page() Page }](all []P) Pages[P] {
	found := Pages[P]{ByPath: make(map[string]*P, len(all))}
	names := make([]string, len(all))
	for i := range all {
		p := all[i].page()
		found.ByPath[p.Path] = &all[i]
		method, _, _ := strings.Cut(p.Methods, ",")
		names[i] = method + " " + p.Path
	}
	found.Missing = "there is no such page; there are " + strings.Join(names, ", ")
	return found
}
