package serve

import (
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/internal/keytext"
)

const (
	longestName = 253
	nameBytes   = "abcdefghijklmnopqrstuvwxyz0123456789-._"
)

// hostNames is a flag value: names of hosts, joined by commas.
type hostNames struct{ names *[]string }

func (h hostNames) String() string {
	if h.names == nil {
		return ""
	}
	return strings.Join(*h.names, ",")
}

// Set takes names without ports.
func (h hostNames) Set(s string) error {
	var all []string
	for name := range strings.SplitSeq(s, ",") {
		name = strings.TrimSpace(name)
		clean := keytext.CleanHost(name)
		if clean == "" || len(clean) > longestName || strings.Trim(clean, nameBytes) != "" || strings.Contains(name, ":") {
			return flags.Errorf("%s is not the name of a host: must be such as weir.internal, without a port, up to 253 bytes",
				flags.Quote(name))
		}
		all = append(all, clean)
	}
	*h.names = all
	return nil
}

// Type is what help shows in place of a value.
func (hostNames) Type() string { return "names" }
