package config

import "github.com/weirhq/weir/config/yamlread"

var ruleTable = tableOf(yamlread.Kind{What: "a rule", Hints: map[string]string{
	"policy":   `did you mean "limits"?`,
	"policies": `did you mean "limits"?`,
	keyLimit:   `did you mean "limits"?`,
	"if":       `did you mean "when"?`,
	"block":    `did you mean "deny"? write deny: true`,
	"reject":   `did you mean "deny"? write deny: true`,
	"forbid":   `did you mean "deny"? write deny: true`,
	"allow":    `did you mean "exempt"? what no rule denies is allowed`,
	keyPath:    `write it below match, as match: {path: ...}`,
	keyHost:    `write it below match, as match: {host: ...}`,
	keyMethod:  `write it below match, as match: {method: ...}`,
	"header":   `write it below match, as match: {header: ...}`,
	"client":   `write it below match, as match: {client: ...}`,
}}, []key[*placedRule]{
	shown[*placedRule](keyName, textual(
		"1 to 128 printable ASCII characters",
		`"maxLength": 128, "pattern": "^[ -~]+$"`,
	), yamlread.About{
		Text:    "Differs from the names of all other rules.",
		Instead: required, Examples: `["login"]`,
	}),
	custom("match", defined("mapping, see [match](#match)", "match"), yamlread.About{
		Text:    "Which requests the rule is for.",
		Instead: "all requests", Examples: `[{"method": "POST", "path": "/login/{user}"}]`,
	}, (*decoder).match),
	shown[*placedRule]("when", shape{
		"expression of the type bool",
		`{"anyOf": [{"type": "string", "minLength": 1, "maxLength": 4096}, {"type": ["number", "boolean"]}]}`,
	}, yamlread.About{
		Text: "A further condition, evaluated only if `match` matches. If it fails, the rule matches, unless it is " +
			"exempt: so it denies.",
		Instead: "always", Examples: `["request.path.startsWith(\"/v2\")"]`,
	}),
	custom(keyLimits, oneOrMany(
		"name of a policy, a [use](#uses-of-a-policy), or a list of these",
		`{"$ref": "#/$defs/use"}`,
	), yamlread.About{
		Text:    "The policies that the rule applies.",
		Instead: unset, Examples: `["per-client", ["per-client", {"policy": "login", "key": "path.user"}]]`,
	}, (*decoder).uses),
	read(keyExempt, boolean, yamlread.About{
		Text: "Frees the request of the limits of all rules. Then there must be no `limits`. A check that names its " +
			"policy, such as `POST /v1/check`, is never exempt.",
		Default: no, Examples: yes,
	}, func(r *placedRule, yes bool) { r.Exempt = yes }),
	read(keyDeny, boolean, yamlread.About{
		Text:    "Refuses the request at once, whatever other rules say: [deny](#deny).",
		Default: no, Examples: yes,
	}, func(r *placedRule, yes bool) { r.Deny = yes }),
	read("mode", choice(ruleModes, modeHints), yamlread.About{
		Text: "Of a rule that denies: `shadow` counts the requests that it would deny, and denies none. Other rules " +
			"have the modes of their policies.",
		Default: `"enforce"`,
	}, func(r *placedRule, word string) { _ = r.Mode.UnmarshalText([]byte(word)) }),
	read("charge",
		choice([]string{"before", afterwards}, map[string]string{"after": afterwards, "debit": afterwards}), yamlread.About{
			Text:    "`afterwards`: its requests report [what was spent already](#costs-told-afterwards).",
			Default: `"before"`, Examples: `["afterwards"]`,
		}, func(r *placedRule, word string) { r.Afterwards = word == afterwards }),
	read("final", boolean, yamlread.About{
		Text: "If this rule matches, later ones are skipped, except those that are exempt or deny. If its `when` fails, " +
			"they are not skipped.",
		Default: no, Examples: yes,
	}, func(r *placedRule, yes bool) { r.Final = yes }),
})

var matchTable = tableOf(yamlread.Kind{What: "match", Hints: map[string]string{
	"ip":      `did you mean "client"?`,
	"when":    `write it beside match: when is a key of the rule`,
	keyLimits: `write it beside match: limits is a key of the rule`,
	keyExempt: `write it beside match: exempt is a key of the rule`,
	"deny":    `write it beside match: deny is a key of the rule`,
}}, []key[*placedRule]{
	shown[*placedRule](keyMethod, oneOrMany("`GET`", `{"type": "string", "pattern": "(^[^a-z]+$)|\\$\\{"}`), yamlread.About{
		Text:     "The method, in upper case, as services often take `post` for `POST`. `GET` includes `HEAD`, as in net/http.",
		Examples: `["POST", ["GET", "HEAD"]]`,
	}),
	shown[*placedRule](keyHost,
		oneOrMany("`api.example.com`, `*.example.com`", `{"type": "string", "minLength": 1}`), yamlread.About{
			Text:     "The host without port, or all hosts below a domain. Case does not matter.",
			Examples: `["api.example.com", ["*.example.org"]]`,
		}),
	shown[*placedRule](keyPath, oneOrMany(
		"`/users/{id}`, `/files/{rest...}`, `/files/`, `/files/{$}`",
		`{"type": "string", "pattern": "^/[^*?#]*$|\\$\\{"}`,
	), yamlread.About{
		Text: "A pattern as in net/http: one segment, the rest, all below, or exactly this. Its wildcards are `path.id` " +
			"in expressions. `*`, `?` and `#` are mistakes; as characters of a path they are `%2A`, `%3F` and `%23`. " +
			"`/login` is not `/login/`.",
		Examples: `["/login/{user}"]`,
	}),
	shown[*placedRule]("header", shape{
		"`{X-Plan: gold, X-Trace: \"ab*\", X-Api-Key: \"*\", X-Internal: null}`",
		`{"type": "object", "minProperties": 1, "additionalProperties": {"type": ["string", "null"]}}`,
	}, yamlread.About{
		Text:     "Fields with an exact value, a beginning, any value, or null for an absent field. All must hold.",
		Examples: `[{"X-Plan": "gold", "X-Api-Key": "*", "X-Internal": null}]`,
	}),
	shown[*placedRule]("client", oneOrMany("`10.0.0.0/8`, `\"::1\"`", `{"type": "string", "minLength": 1}`), yamlread.About{
		Text:     "Addresses and networks of clients.",
		Examples: `["10.0.0.0/8", ["192.0.2.1", "2001:db8::/32"]]`,
	}),
	shown[*placedRule]("route", oneOrMany("`GET /users/{id}`", `{"type": "string", "minLength": 1}`), yamlread.About{
		Text:     "The name that the server has for what is asked for.",
		Examples: `["POST /login"]`,
	}),
	shown[*placedRule](keyProtocol, oneOrMany(
		"`http`, `grpc`, `rls`, `rlqs`",
		`{"type": "string", "pattern": "(^[^A-Z]+$)|\\$\\{"}`,
	), yamlread.About{
		Text:     "What the request came by, in lower case; the last two are those of [Envoy](envoy.md).",
		Examples: `["http", "grpc"]`,
	}),
})

var useTable = tableOf(yamlread.Kind{What: "a use of a policy"}, []key[*placedUse]{
	shown[*placedUse](keyPolicy, textual("name of a policy", ""), yamlread.About{
		Text:    "The policy.",
		Instead: required, Examples: `["per-client"]`,
	}),
	custom("key", keyShape("as in a policy"), yamlread.About{
		Text:     "What requests are counted under here.",
		Instead:  "the key of the policy",
		Examples: `["client.ip", "request.headers[\"x-api-key\"]", ["client.ip", "path.user"]]`,
	}, func(d *decoder, v yamlread.Value, u *placedUse) { u.Key = d.key(v) }),
	custom("cost", costShape("as in a policy"), yamlread.About{
		Text: "How many permits a request costs here. Of several rules that lead to the same key of a policy the highest cost " +
			"counts.",
		Instead: "the cost of the policy", Examples: `[5, "int(request.headers[\"x-cost\"])"]`,
	}, func(d *decoder, v yamlread.Value, u *placedUse) { u.Cost = d.cost(v) }),
})

var useNeeds = []need{{"", keyPolicy, "it names the policy", "add policy: and the name of a policy"}}
