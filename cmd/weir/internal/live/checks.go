package live

import (
	"context"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

// A check names a policy and a key, where a request is matched by rules. So that one engine does both with one state, each
// policy has a rule for its checks, which is not told to anybody.
const (
	checkProtocol = "weir-check"
	checkRule     = "weir-check "
)

// check is the header of a request that stands for a check.
type check struct {
	key     []byte
	cost    int64
	limit   weir.Limit
	limited bool // by limit
}

// Values are none.
func (*check) Values(string) []string { return nil }

// CheckRequest makes r a check of the policy with this name, which [Limits.Has]: cost permits for the key. The slice must
// not be changed before r has been decided. A store that shares the policy is asked until ctx ends.
func CheckRequest(ctx context.Context, r *policy.Request, name, key []byte, cost int64) {
	path := make([]byte, 1, 1+hex.EncodedLen(len(name)))
	path[0] = '/'
	*r = policy.Request{
		Protocol: checkProtocol, Path: string(hex.AppendEncode(path, name)), Header: &check{key: key, cost: cost}, Context: ctx,
	}
}

// BringLimit makes a check bring a limit of its own: then its Header has a method Limit() (weir.Limit, bool), for the
// LimitBy of its policy.
func BringLimit(r *policy.Request, l weir.Limit) {
	if c, ok := r.Header.(*check); ok {
		c.limit, c.limited = l, true
	}
}

// Limit is the limit that the check brings, and whether it does.
func (c *check) Limit() (weir.Limit, bool) { return c.limit, c.limited }

// checkKey is the key of a check, checkCost its cost.
type (
	checkKey  struct{}
	checkCost struct{}
)

// AppendTo appends the key.
func (checkKey) AppendTo(b []byte, r *policy.Request) ([]byte, error) {
	if c, ok := r.Header.(*check); ok {
		b = append(b, c.key...)
	}
	return b, nil
}

// String is how the key is told.
func (checkKey) String() string { return "key" }

// Int is the cost.
func (checkCost) Int(r *policy.Request) (int64, error) {
	if c, ok := r.Header.(*check); ok {
		return c.cost, nil
	}
	return 1, nil
}

// String is how the cost is told.
func (checkCost) String() string { return "cost" }

// withChecks is set with a rule for the checks of each policy before its own.
func withChecks(set *policy.Set) *policy.Set {
	rules := make([]policy.Rule, 0, len(set.Policies)+len(set.Rules))
	for i := range set.Policies {
		name := set.Policies[i].Name
		rules = append(rules, policy.Rule{
			Name: checkRule + strconv.Itoa(i),
			Match: policy.Match{
				Protocols: []string{checkProtocol}, Paths: []string{"/" + hex.EncodeToString([]byte(name))},
			},
			Limits: []policy.Use{{Policy: name, Key: checkKey{}, Cost: checkCost{}}},
			Final:  true,
		})
	}
	return &policy.Set{Policies: set.Policies, Rules: append(rules, set.Rules...)}
}

// withoutChecks leaves out what has changed about the rules for checks.
func withoutChecks(changes []policy.Change) []policy.Change {
	return slices.DeleteFunc(changes, func(c policy.Change) bool { return strings.HasPrefix(c.Path, "rules."+checkRule) })
}

func isCheck(rule string) bool { return strings.HasPrefix(rule, checkRule) }

// IsCheckRule tells whether a rule is one for the checks of a policy, which is not told to anybody.
func IsCheckRule(rule string) bool { return isCheck(rule) }

// RuleName is the name of a rule as it is told: "" for those of checks, which nobody has written.
func RuleName(rule string) string {
	if isCheck(rule) {
		return ""
	}
	return rule
}

// ProtocolOf is the protocol of a request as it is told, and whether it is a check, of which nothing else is known.
func ProtocolOf(r *policy.Request) (protocol string, check bool) {
	if r.Protocol == checkProtocol {
		return "check", true
	}
	return r.Protocol, false
}
