package checkapi

import (
	_ "embed" // of the document
	"net/http"
	"strconv"

	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
)

// openAPI describes the API to programs: OpenAPI 3.1.
//
//go:embed openapi.json
var openAPI []byte

// OpenAPI is the document about the pages of the handler.
func OpenAPI() []byte { return openAPI }

// openAPI serves GET /openapi.json.
func (h *Handler) openAPI(w http.ResponseWriter, _ *http.Request) *answer.Problem {
	header := w.Header()
	header["Content-Type"] = jsonType
	header["Content-Length"] = []string{strconv.Itoa(len(h.document))}
	_, _ = w.Write(h.document) // a client that has gone is not told
	return nil
}
