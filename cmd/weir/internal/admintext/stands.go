package admintext

import (
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/admin"
	"github.com/weirhq/weir/cmd/weir/internal/table"
)

// soon is how many seconds to come back after are not worth a word: an override with a higher rate has let it in by then.
const soon = 1

// StillShut says that a key is locked out, "" if it is not. No other change than unlock ends that.
func StillShut(k *admin.Key) string {
	if k.LockedFor == 0 {
		return ""
	}
	return "it is still locked out for another " + in(k.LockedFor, time.Now())
}

// StillRefused says which limit refuses the next request of a key that is not locked out, and for how long, "" if none does or
// not for long: what has let the key in need not be enough.
func StillRefused(k *admin.Key) string {
	var worst *admin.KeyLimit
	for i := range k.Limits {
		l := &k.Limits[i]
		if l.Allowed || l.RetryAfter >= 0 && l.RetryAfter < soon {
			continue
		}
		if worst == nil || worst.RetryAfter >= 0 && (l.RetryAfter < 0 || l.RetryAfter > worst.RetryAfter) {
			worst = l
		}
	}
	if worst == nil || k.LockedFor != 0 {
		return ""
	}
	name := ""
	if worst.Name != "" {
		name = " by limit " + table.Printable(worst.Name)
	}
	return "one more would be refused now" + name + ": " + retry(worst.Reason, worst.RetryAfter, time.Now())
}
