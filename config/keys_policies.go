package config

import (
	"slices"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/policy"
)

// limitKeys are those of one or several limits.
var limitKeys = []key[*placedPolicy]{
	shown[*placedPolicy](keyLimit, defined("rate", keyRate), yamlread.About{
		Text: "One token bucket: how fast permits come back. `limit` or `limits` is required, except with `mode: off` " +
			"or a preset.",
		Examples: `["100/s", "8/min", "1000/24h"]`,
	}),
	shown[*placedPolicy](keyBurst, permitCount.shape, yamlread.About{
		Text:    "How many permits the bucket of `limit` has at once.",
		Instead: "the permits of `limit`, or that of the preset", Examples: `[200]`,
	}),
	shown[*placedPolicy](keyLimits, shape{
		"list of 1 to 8 [limits](#limits)",
		`{"type": "array", "minItems": 1, "maxItems": 8, "items": {"$ref": "#/$defs/limit"}}`,
	}, yamlread.About{
		Text:     "Limits that must all allow a request: all are charged, or none.",
		Examples: `[[{"rate": "100/s", "burst": 200}, {"algorithm": "fixed-window", "rate": "100000/24h"}]]`,
	}),
}

// policyHints are for what policyMeant does not know.
var policyHints = map[string]string{
	keyRate:      `did you mean "limit"? rate is a key of the items of limits`,
	keyAlgorithm: `algorithm is a key of the items of limits: write limits: [{algorithm: ..., rate or permits: ...}]`,
	keyPermits:   `permits is a key of the items of limits: write limits: [{algorithm: concurrency, permits: ...}]`,
	"shadow":     `did you mean "mode"? write mode: shadow`,
	"dry_run":    `did you mean "mode"? write mode: shadow`,
	"enabled":    `did you mean "mode"? write mode: off for false`,
	"disabled":   `did you mean "mode"? write mode: off for true`,
}

const limitsExample = "{limit: 100/s}, for instance"

var limitsTable = tableOf(yamlread.Kind{
	What: "a choice of limits", Example: limitsExample, Meant: policyMeant,
}, limitKeys)

var policyTable = tableOf(yamlread.Kind{
	What: "a policy", Example: limitsExample, Hints: policyHints, Meant: policyMeant,
}, slices.Concat(limitKeys, policyKeys))

// policyKeys are those of a policy beside its limits.
var policyKeys = []key[*placedPolicy]{
	custom("key", keyShape("[expression](#expressions) of the type string, or a list of up to 16"), yamlread.About{
		Text:     "What requests are counted under. Different lists never make the same key.",
		Instead:  "all share one state",
		Examples: `["client.ip", "request.headers[\"x-api-key\"]", ["client.ip", "path.user"]]`,
	}, func(d *decoder, v yamlread.Value, p *placedPolicy) { p.Key = d.key(v) }),
	custom("cost", costShape("number, 0 to 10^15, or expression of the type int"), yamlread.About{
		Text: "How many permits a request takes of each limit. 0 takes none, and is refused only if none is left. " +
			"A cost out of the range refuses the request, whatever `fail` is.",
		Default:  `1`,
		Instead:  "that of the request, usually 1; of a parent, that of the child",
		Examples: `[5, "int(request.headers[\"x-cost\"])"]`,
	}, func(d *decoder, v yamlread.Value, p *placedPolicy) { p.Cost = d.cost(v) }),
	read("mode", choice(modeNames, modeHints), yamlread.About{
		Text: "`shadow` refuses nothing and counts what it would refuse; `tag` does the same, and [tells the service]" +
			"(#soft-limits) of it; `off` does nothing.",
		Default: `"enforce"`,
	}, func(p *placedPolicy, word string) { _ = p.Mode.UnmarshalText([]byte(word)) }),
	shown[*placedPolicy]("candidate", defined("`limit` and `burst`, or `limits`", keyLimits), yamlread.About{
		Text:    "Limits that are measured beside the live ones, as if they had replaced them. Not with `mode: shadow` or `tag`.",
		Instead: unset, Examples: `[{"limit": "80/s", "burst": 100}]`,
	}),
	shown[*placedPolicy]("tiers", defined("mapping, see [tiers](#tiers)", "tiers"), yamlread.About{
		Text:    "Other limits for classes of clients.",
		Instead: unset, Examples: `[{"by": "request.headers[\"x-plan\"]", "gold": {"limit": "1000/s"}}]`,
	}),
	shown[*placedPolicy]("keys", shape{
		"mapping of keys to `limit` and `burst`, or `limits`",
		`{"type": "object", "maxProperties": 65536, "additionalProperties": {"$ref": "#/$defs/limits"}}`,
	}, yamlread.About{
		Text: "Other limits for single keys: as many, with the same names and algorithms. They win over those of a " +
			"tier. With the tiers at most 65,536.",
		Instead: unset, Examples: `[{"acme": {"limit": "500/s"}}]`,
	}),
	custom("parent", policyName.shape, yamlread.About{
		Text: "A policy that applies too, under a key of its own, so that its children together do not exceed it. Of " +
			"several children the highest cost counts.",
		Instead: unset, Examples: `["organisation"]`,
	}, (*decoder).parent),
	shown[*placedPolicy](keyQueue, defined("mapping, see [queue](#queue)", keyQueue), yamlread.About{
		Text:    "For callers that are ready to wait.",
		Instead: "no request waits", Examples: `[{"limit": 100, "max_wait": "2s"}]`,
	}),
	read(keyMaxKeys, number(1, 1<<31, "a number of keys"), yamlread.About{
		Text:    "How many keys each limit tracks at a time. Of a shared policy it bounds lockouts and the candidate.",
		Default: million, Examples: fewer,
	}, func(p *placedPolicy, n int64) { p.MaxKeys = int(n) }),
	read("when_full", choice([]string{"deny", admit}, nil), yamlread.About{
		Text:    "What happens to a new key if as many are tracked and none can be forgotten.",
		Default: `"deny"`,
	}, func(p *placedPolicy, word string) { p.AdmitWhenFull = word == admit }),
	custom("lockout", defined("mapping, see [lockout](#lockout)", "lockout"), yamlread.About{
		Text:    "Locks out keys that are refused again and again.",
		Instead: unset, Examples: `[{"refusals": 10, "within": "1m", "for": "15m"}]`,
	}, func(d *decoder, v yamlread.Value, p *placedPolicy) { p.Lockout = d.lockout(v) }),
	read("fail", choice(failNames, failHints), yamlread.About{
		Text: "What happens to a request whose key, tier or cost fails, or whose store or owner is unavailable: " +
			"refused, or let pass by this policy. `local` is for a store: the limit divided by the number of processes " +
			"applies in each. It refuses a key that fails.",
		Default: `"closed"`,
	}, func(p *placedPolicy, word string) { _ = p.Fail.UnmarshalText([]byte(word)) }),
	custom("priority", choice(priorityNames, priorityHints).shape, yamlread.About{
		Text: "For a Go program that gives its engine a [shedder](adaptive.md). `weir` has none, and `weir config " +
			"check` warns. Of several policies the highest counts.",
		Default: `"normal"`,
	}, (*decoder).priority),
	shown[*placedPolicy](keyConsistency, choice(consistencyNames, consistencyHints).shape, yamlread.About{
		Text: "How exactly processes [share](shared.md) the policy. All but `local` need a [store](#store). A change " +
			"from or to `local` carries no counts over.",
		Default: `"local"`,
	}),
	read(keyHold, duration(time.Millisecond, 24*time.Hour), yamlread.About{
		Text: "Of a shared or durable policy: when the permits of a process that died come back, those of a concurrency " +
			"limit or of a reservation.",
		Default: `"1m"`, Examples: `["1m"]`,
	}, func(p *placedPolicy, t time.Duration) { p.Hold = t }),
	shown[*placedPolicy](keyDurability, choice(durabilityNames, durabilityHints).shape, yamlread.About{
		Text: "What the counts survive. `cluster` is [durable](#cluster). `weir serve` keeps calendar windows without " +
			"it in [a file](restart.md). A change carries no counts over.",
		Default: `"memory"`, Instead: "`memory`, or that of the preset",
	}),
	shown[*placedPolicy](keyPreset, choice(presetNames, presetHints).shape, yamlread.About{
		Text:    "What the policy has where it does not say so itself: see [presets](#presets).",
		Instead: unset, Examples: `["metered-api"]`,
	}),
}

var limitTable = tableOf(yamlread.Kind{What: "a limit", Meant: limitMeant, Hints: map[string]string{
	"type":     `did you mean "algorithm"?`,
	windowWord: `the window is the period of rate: write rate: 100/1m`,
	periodWord: `the period is in rate: write rate: 100/1m`,
	keyLimit:   `did you mean "rate", or "permits"? limit is the short form beside limits`,
	"requests": `permits and period are in rate: write rate: 100/1m`,
	"timezone": `did you mean "zone"?`,
}}, []key[*placedLimit]{
	custom(keyName, textual(
		"1 to 64 printable ASCII characters without `/`",
		`"maxLength": 64, "pattern": "^[ -.0-~]+$"`,
	), yamlread.About{
		Text:    "Distinguishes the limits of a policy. A reload keeps the state of a name.",
		Instead: "the window (`1m`, `24h`, `month`) or `concurrency`", Examples: `["second"]`,
	}, (*decoder).limitName),
	shown[*placedLimit](keyAlgorithm, shape{"see below", choice(algorithmNames(), algorithmHints).schema}, yamlread.About{
		Text:    "How permits are counted.",
		Default: `"token-bucket"`,
	}),
	shown[*placedLimit](keyRate, defined("rate", keyRate), yamlread.About{
		Text:    "Permits per period. The period of a window is its length.",
		Instead: "required, except with `concurrency` and `calendar-window`", Examples: `["100/s"]`,
	}),
	read(keyBurst, permitCount, yamlread.About{
		Text:    "How many permits a token bucket has at once.",
		Instead: "the permits of `rate`", Examples: `[200]`,
	}, setPermits),
	read("segments", number(1, algo.MaxSegments, "a number of segments"), yamlread.About{
		Text:    "Into how many segments a sliding window is cut. The limit holds within the window less one segment.",
		Default: `10`, Examples: `[12]`,
	}, func(l *placedLimit, n int64) { l.segments = int(n) }),
	read(keyPermits, permitCount, yamlread.About{
		Text:    "How many permits are out at a time, or can be taken in each window.",
		Instead: "required with `concurrency` and `calendar-window`", Examples: `[10]`,
	}, setPermits),
	shown[*placedLimit](keyEvery, choice(unitNames(), unitHints).shape, yamlread.About{
		Text:    "The unit of the calendar.",
		Instead: "required with `calendar-window`",
	}),
	shown[*placedLimit]("zone", textual("name in the IANA database", ""), yamlread.About{
		Text:    "The time zone of the calendar, such as `Europe/Vienna`.",
		Default: `"UTC"`, Examples: `["Europe/Vienna"]`,
	}),
	shown[*placedLimit](keyMonth, named(1, monthNames), yamlread.About{
		Text:    "The month in which quarters and years begin.",
		Default: `1`, Examples: `[4, "april"]`,
	}),
	shown[*placedLimit](keyDay, number(1, 31, "").within("1 to 31"), yamlread.About{
		Text:    "The day on which months, quarters and years begin; in a month that is shorter, its last day.",
		Default: `1`, Examples: `[15]`,
	}),
	shown[*placedLimit](keyWeekday, named(1, weekdayNames), yamlread.About{
		Text:    "The day on which weeks begin.",
		Default: `1`, Examples: `["sunday"]`,
	}),
	shown[*placedLimit](keyHour, number(0, 23, "").within("0 to 23"), yamlread.About{
		Text:    "The hour at which days and longer windows begin.",
		Default: `0`, Examples: `[6]`,
	}),
	shown[*placedLimit](keyMinute, number(0, 59, "").within("0 to 59"), yamlread.About{
		Text:    "The minute at which hours and longer windows begin.",
		Default: `0`, Examples: `[30]`,
	}),
})

var tiersTable = tableOf(yamlread.Kind{What: "tiers"}, []key[*placedPolicy]{
	shown[*placedPolicy]("by", textual("expression of the type string", `"maxLength": 4096`), yamlread.About{
		Text:    "Chooses the tier of a request.",
		Instead: required, Examples: `["request.headers[\"x-plan\"]"]`,
	}),
})

var tiersNeeds = []need{
	{"", "by", "tiers need an expression that chooses one", `add by: request.headers["x-plan"], for instance`},
}

var queueTable = tableOf(yamlread.Kind{What: "a queue", Example: "{limit: 100}, for instance", Hints: map[string]string{
	"timeout": `did you mean "max_wait"?`,
	"size":    `did you mean "limit"?`,
}}, []key[*placedPolicy]{
	shown[*placedPolicy](keyLimit, number(0, algo.MaxPermits, "").shape, yamlread.About{
		Text:    "How many permits the callers of a key may wait for at a time, together. 0: no caller waits.",
		Instead: "required, except with a preset", Examples: `[100]`,
	}),
	custom("order", choice(orderNames, orderHints).shape, yamlread.About{
		Text:    "Which caller is served first.",
		Default: `"oldest-first"`,
	}, (*decoder).order),
	read("max_wait", duration(time.Millisecond, time.Hour), yamlread.About{
		Text:    "How long a request waits at most.",
		Default: `"1s"`, Examples: `["2s"]`,
	}, func(p *placedPolicy, t time.Duration) { p.MaxWait = t }),
})

var lockoutTable = tableOf(yamlread.Kind{What: "a lockout", Hints: map[string]string{
	"threshold": `did you mean "refusals"?`,
	"max":       `did you mean "refusals"?`,
	"failures":  `did you mean "refusals"?`,
	windowWord:  `did you mean "within"?`,
	periodWord:  `did you mean "within"?`,
	"duration":  `did you mean "for"?`,
}}, []key[*policy.Lockout]{
	read("refusals", number(1, 65535, "a number of refusals"), yamlread.About{
		Text:    "How many refusals within `within` lead to it.",
		Instead: required, Examples: `[10]`,
	}, func(l *policy.Lockout, n int64) { l.Refusals = int(n) }),
	read("within", duration(time.Millisecond, 24*time.Hour), yamlread.About{
		Text:    "How long a refusal counts.",
		Instead: required, Examples: `["1m"]`,
	}, func(l *policy.Lockout, t time.Duration) { l.Within = t }),
	read("for", duration(time.Millisecond, algo.MaxPeriod), yamlread.About{
		Text: "How long the lockout lasts. A reload with less shortens lockouts that have begun, and one without `lockout` " +
			"ends them.",
		Instead: required, Examples: `["15m"]`,
	}, func(l *policy.Lockout, t time.Duration) { l.For = t }),
	read("in_a_row", boolean, yamlread.About{
		Text:    "Whether an allowed request clears the count.",
		Default: no, Examples: yes,
	}, func(l *policy.Lockout, yes bool) { l.InARow = yes }),
})

var lockoutNeeds = []need{
	{"", "refusals", "a lockout needs it", "add refusals: 10, for instance"},
	{"", "within", "a lockout needs it", "add within: 1m, for instance"},
	{"", "for", "a lockout needs it", "add for: 15m, for instance"},
}
