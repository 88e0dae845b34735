package quotashare

import "slices"

// Figures are what an account is about, for people.
type Figures struct {
	Key      string  `json:"key"`
	Limit    float64 `json:"limit_per_second"`
	Burst    int64   `json:"burst"`
	Assigned float64 `json:"assigned_per_second"`
	Others   float64 `json:"used_by_others_per_second"`
	Held     int64   `json:"tokens_out"`
	Tokens   float64 `json:"tokens_left"`
	Shares   int     `json:"shares"`
}

// Accounts are the figures of up to most accounts, those of the most shares first, and how many accounts there are.
func (l *Ledger) Accounts(most int, nanos int64) ([]Figures, int) {
	now := milliseconds(nanos)
	all := make([]Figures, 0, len(l.accounts))
	for _, a := range l.accounts {
		a.settle(now)
		all = append(all, Figures{
			Key: a.key, Limit: a.perSecond(a.rate), Burst: a.burst, Assigned: a.perSecond(a.assigned), Held: a.held,
			Others: a.perSecond(a.others), Tokens: float64(a.tokens) / float64(a.unit), Shares: len(a.links),
		})
	}
	slices.SortFunc(all, func(x, y Figures) int {
		if x.Shares != y.Shares {
			return y.Shares - x.Shares
		}
		if x.Key < y.Key {
			return -1
		}
		return 1
	})
	return all[:min(most, len(all))], len(all)
}
