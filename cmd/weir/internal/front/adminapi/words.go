package adminapi

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/policy"
)

// lockoutInWords returns "after 10 refusals within 1m, for 1h".
func lockoutInWords(o *policy.Lockout) string {
	if o == nil {
		return ""
	}
	row := ""
	if o.InARow {
		row = " in a row"
	}
	return fmt.Sprintf("after %d refusals%s within %s, for %s",
		o.Refusals, row, flags.Short(o.Within), flags.Short(o.For))
}

// ruleInWords is what a rule matches, in the words of weir config explain.
func ruleInWords(r *policy.Rule) string {
	m := &r.Match
	var all []string
	add := func(what string, of []string) {
		if len(of) > 0 {
			all = append(all, what+" "+listed(of))
		}
	}
	add("protocol", m.Protocols)
	add("method", m.Methods)
	add("host", m.Hosts)
	add("path", m.Paths)
	add("route", m.Routes)
	for _, h := range m.Headers {
		switch {
		case h.Absent:
			all = append(all, "no header "+h.Name)
		case h.Value == "*":
			all = append(all, "header "+h.Name)
		default:
			all = append(all, "header "+h.Name+": "+strconv.Quote(h.Value))
		}
	}
	networks := make([]string, len(m.Clients))
	for i, n := range m.Clients {
		networks[i] = n.String()
		if n.IsSingleIP() {
			networks[i] = n.Addr().String()
		}
	}
	add("client", networks)
	if r.When != nil {
		all = append(all, "when "+strings.TrimSpace(r.When.String()))
	}
	if len(all) == 0 {
		return "all requests"
	}
	return strings.Join(all, ", ")
}

// mostListed is how many of something are listed.
const mostListed = 20

func listed(of []string) string {
	if len(of) > mostListed {
		return strings.Join(of[:mostListed], " or ") + fmt.Sprintf(" or one of %d more", len(of)-mostListed)
	}
	return strings.Join(of, " or ")
}
