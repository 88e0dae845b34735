package respapi_test

import (
	"bytes"
	"fmt"

	"github.com/weirhq/weir/cmd/weir/internal/resp"
)

// showTo writes a reply as text: the kind, then what it says.
func showTo(b *bytes.Buffer, r resp.Reply) {
	switch r.Kind {
	case resp.Int, resp.Bool:
		fmt.Fprintf(b, "%c%d", r.Kind, r.Int)
	case resp.Double:
		fmt.Fprintf(b, "%c%g", r.Kind, r.Float)
	case resp.Array, resp.Map, resp.Set, resp.Push:
		fmt.Fprintf(b, "%c[", r.Kind)
		for i, e := range r.Elems {
			if i > 0 {
				b.WriteByte(' ')
			}
			showTo(b, e)
		}
		b.WriteByte(']')
	case resp.Null:
		b.WriteByte('_')
	default:
		fmt.Fprintf(b, "%c%s", r.Kind, r.Text)
	}
}
