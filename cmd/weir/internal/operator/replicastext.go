package operator

import (
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// lead is what the numbers of a store or a cluster come to.
func lead(out terminal.Output, what, text string, bad bool) string {
	if bad {
		text = out.Red(text)
	}
	return out.Bold(what) + ": " + text
}

// StoreState returns in words whether a store replies, by its own report, and whether that is bad.
func StoreState(status any) (text string, bad bool) {
	s, _ := status.(map[string]any)
	since := ""
	if breaker, ok := s["breaker"].(map[string]any); ok {
		if t, err := time.Parse(time.RFC3339, statusWord(breaker, "since")); err == nil {
			since = ", since " + Time(t)
		}
	}
	if yes, _ := s["answers"].(bool); yes {
		return "available" + since, false
	}
	return "UNAVAILABLE" + since + because(s) + "; the fail of each policy decides", true
}

// ClusterState says who owns the durable limits, as a node tells of it, and whether that is bad.
func ClusterState(status any) (text string, bad bool) {
	s, _ := status.(map[string]any)
	joined, _ := s["joined"].(bool)
	owns, _ := s["owns"].(bool)
	switch {
	case !joined:
		return "IT IS NOT JOINED" + because(s) + "; the fail of each policy decides", true
	case owns:
		return "this node owns the limits", false
	case statusWord(s, "owner") != "":
		return "the owner of the limits is " + terminal.Printable(statusWord(s, "owner")), false
	default:
		return "NO OWNER IS KNOWN; the fail of each policy decides", true
	}
}

func because(s map[string]any) string {
	why := statusWord(s, "error")
	if why == "" {
		return ""
	}
	return ": " + terminal.Printable(strings.TrimPrefix(why, "weir: "))
}

func statusWord(s map[string]any, name string) string {
	text, _ := s[name].(string)
	return text
}
