package adminapi

import (
	"fmt"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/internal/inwords"
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
	return fmt.Sprintf("after %s%s within %s, for %s",
		terminal.Plural(o.Refusals, "refusal", "refusals"), row, inwords.Short(o.Within), inwords.Short(o.For))
}

// mostListed is how many of something are listed.
const mostListed = 20

// listed joins some values of a condition.
func listed(_ string, of []string) string {
	if len(of) > mostListed {
		return strings.Join(of[:mostListed], " or ") + fmt.Sprintf(" or one of %d more", len(of)-mostListed)
	}
	return strings.Join(of, " or ")
}
