package whycmd

import (
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/table"
)

// safe are the bytes that no shell treats in any other way than as themselves.
const safe = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./:,@%+="

// shellQuote is s as a word for a shell of POSIX. What does not print is replaced, so that it cannot move the cursor: then the
// command will not find the key, and harms nobody.
func shellQuote(s string) string {
	s = table.Printable(s)
	if s != "" && strings.Trim(s, safe) == "" && s[0] != '-' && s[0] != '=' {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
