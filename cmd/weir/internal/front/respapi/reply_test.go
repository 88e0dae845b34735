package respapi_test

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/weirhq/weir/internal/respclient"
)

// showTo writes a reply as text: the kind, then what it says.
func showTo(b *bytes.Buffer, r respclient.Reply) {
	switch r.Kind {
	case respclient.Bool:
		fmt.Fprintf(b, "%c%d", r.Kind, map[string]int{"t": 1}[r.Value])
	case respclient.Double:
		f, _ := strconv.ParseFloat(r.Value, 64)
		fmt.Fprintf(b, "%c%g", r.Kind, f)
	case respclient.Array, respclient.Map, respclient.Set, respclient.Push:
		fmt.Fprintf(b, "%c[", r.Kind)
		for i, e := range r.Elems {
			if i > 0 {
				b.WriteByte(' ')
			}
			showTo(b, e)
		}
		b.WriteByte(']')
	case respclient.Null:
		b.WriteByte('_')
	default:
		fmt.Fprintf(b, "%c%s", r.Kind, r.Value)
	}
}
