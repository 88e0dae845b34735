package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/config/yamlread"
)

//go:generate go test -count=1 -run ^TestGenerated$ -update .

// Schema returns the JSON Schema of the format (draft 2020-12), for editors. It accepts every file that [Parse] accepts, and
// refuses what has the wrong structure. Only Parse checks what needs more than that, such as names of policies and expressions.
// Merge keys and aliases must be resolved before. It is made of the tables of keys.
func Schema() []byte { return slices.Clone(schema()) }

// What the schema says of kinds beside their keys: which need one another, and which cannot stand together.
const (
	fileRules = `{
	"patternProperties": {"^x-": {"description": "Free: a place for anchors."}}
}`
	limitsRules = `{
	"not": {"required": ["limit", "limits"]},
	"dependentRequired": {"burst": ["limit"]},
	"anyOf": [{"required": ["limit"]}, {"required": ["limits"]}]
}`
	policyRules = `{
	"not": {"required": ["limit", "limits"]},
	"if": {"not": {"properties": {"mode": {"const": "off"}}, "required": ["mode"]}},
	"then": {"anyOf": [{"required": ["limit"]}, {"required": ["limits"]}, {"required": ["preset"]}]},
	"allOf": [{"if": {"required": ["burst"]}, "then": {"anyOf": [{"required": ["limit"]}, {"required": ["preset"]}],
		"not": {"required": ["limits"]}}}, {"if": {"not": {"required": ["preset"]}},
		"then": {"properties": {"queue": {"required": ["limit"]}}}}]
}`
	tiersRules = `{
	"minProperties": 2,
	"maxProperties": 65537,
	"additionalProperties": {"$ref": "#/$defs/limits", "description": "A tier: as many limits as the policy, with the ` +
		`same names and algorithms."}
}`
	ruleRules = `{
	"required": ["name"],
	"not": {"required": ["exempt", "limits"], "properties": {"exempt": {"const": true}}},
	"allOf": [{"if": {"required": ["deny"], "properties": {"deny": {"const": true}}}, "then": {"properties": {"limits": false,
		"exempt": {"not": {"const": true}}, "final": {"not": {"const": true}}, "charge": {"not": {"const": "afterwards"}}}}},
		{"if": {"not": {"required": ["deny"], "properties": {"deny": {"not": {"const": false}}}}},
		"then": {"properties": {"mode": {"not": {"enum": ["shadow", "off"]}}}}}]
}`
	storeRules = `{
	"oneOf": [{"required": ["url"]}, {"required": ["addresses"]}],
	"dependentRequired": {"master": ["addresses"], "tls": ["addresses"]}
}`
	clusterRules = `{
	"oneOf": [{"required": ["directory"], "properties": {"file": false}}, {"required": ["endpoints"],
		"properties": {"file": false}}, {"required": ["file"], "properties": {"directory": false, "endpoints": false,
		"name": false, "peers": false, "listen": false, "join": false, "address": false, "listen_address": false,
		"prefix": false, "ttl": false, "requeue": false}}],
	"dependentRequired": {"peers": ["directory", "name"], "name": ["directory"], "listen": ["peers"],
		"username": ["endpoints"], "password": ["endpoints"], "ca_file": ["endpoints"], "cert_file": ["endpoints"],
		"key_file": ["endpoints"], "endpoints": ["address"], "peer_cert_file": ["address"], "peer_key_file": ["address"]},
	"if": {"properties": {"peers": {"minProperties": 2}}, "required": ["peers"]},
	"then": {"required": ["address"]},
	"dependentSchemas": {"join": {"anyOf": [{"required": ["peers"]}, {"properties": {"join": {"not": {"const": true}}},
		"required": ["directory"]}]}}
}`
)

// sharedDefinitions are those that are no kinds.
const sharedDefinitions = `{
	"env": {
		"type": "string",
		"pattern": "\\$\\{[A-Za-z_]",
		"description": "A value of the environment: ${NAME} or ${NAME:-default}.",
		"examples": ["${BURST}", "${BURST:-100}"]
	},
	"rate": {
		"anyOf": [{"type": "string", "pattern": "^\\s*[0-9][0-9_]*(\\.[0-9]{1,9})?\\s*/\\s*\\S+\\s*$"}, {"$ref": "#/$defs/env"}],
		"description": "Permits per period: a number, with up to 9 decimals, / and a unit (ns, us, ms, s, sec, second, m, ` +
	`min, minute, h, hour, d, day, w, week), a number with a unit, or a duration.",
		"examples": ["100/s", "8/min", "0.5/s", "1000/24h", "5/1m30s"]
	},
	"duration": {
		"anyOf": [
			{"type": "string", "minLength": 1, "pattern": "^([0-9]+w)?([0-9]+d)?([0-9]*\\.?[0-9]*(ns|us|µs|μs|ms|s|m|h))*$"},
			{"$ref": "#/$defs/env"}
		],
		"description": "A duration: numbers with the units w, d, h, m, s, ms, us and ns.",
		"examples": ["90s", "1h30m", "30d"]
	}
}`

// limitRules are those of a limit: each algorithm has keys of its own, and so has each unit of the calendar.
func limitRules() string {
	all := make([]string, 0, len(fits)+len(calendarKeys))
	for _, name := range algorithmNames() {
		a := weir.Algorithm(slices.Index(algorithmNames(), name))
		known := append(slices.Concat(fits[a].needs, fits[a].has), keyName, "algorithm")
		var others []string
		for _, k := range limitTable.Keys {
			if !slices.Contains(known, k.Name) {
				others = append(others, `"`+k.Name+`": false`)
			}
		}
		given := `, "required": ["algorithm"]`
		if a == weir.AlgorithmTokenBucket { // it is the one without the key
			given = ""
		}
		all = append(all, fmt.Sprintf(
			`{"if": {"properties": {"algorithm": {"const": %q}}%s}, "then": {"properties": {%s}, "required": [%s]}}`,
			name, given, strings.Join(others, ", "), quoted(fits[a].needs)))
	}
	for _, k := range calendarKeys {
		var without []string
		for unit := algo.CalendarMinute; unit <= algo.CalendarYear; unit++ {
			if unit < k.first || unit > k.last {
				without = append(without, unit.String())
			}
		}
		all = append(all, fmt.Sprintf(
			`{"if": {"required": ["every"], "properties": {"every": {"enum": [%s]}}}, "then": {"properties": {%q: false}}}`,
			quoted(without), k.key))
	}
	return `{"allOf": [` + strings.Join(all, ", ") + `]}`
}

// schema is made once.
var schema = sync.OnceValue(func() []byte {
	definitions := object(sharedDefinitions)
	for _, k := range kinds() {
		accepted := "Accepted"
		if k.Kind == matchTable.Kind { // whose words are examples
			accepted = "For instance"
		}
		properties := map[string]any{}
		for _, one := range k.keys {
			properties[one.Name] = property(one, accepted)
		}
		definition := map[string]any{
			"type": "object", "description": k.text, "additionalProperties": false, "properties": properties,
		}
		maps.Copy(definition, object(k.rules))
		for _, n := range k.needs {
			in, of := definition, "required"
			if n.beside != "" {
				in, of = member(definition, "dependentRequired"), n.beside
			}
			all, _ := in[of].([]any)
			in[of] = append(all, n.key)
		}
		if k.name == "use" {
			definition = map[string]any{
				"description": "A policy that a rule applies: its name, or a mapping.",
				"anyOf":       []any{object(textual("", "").schema), definition},
			}
		}
		definitions[k.name] = definition
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://github.com/weirhq/weir/config/schema.json",
		"title": "weir", "description": "The configuration of weir: policies, and the rules that apply them to requests.",
		"$ref": "#/$defs/file", "$defs": definitions,
	})
	if err != nil {
		panic(err) // it consists of texts and of what was decoded
	}
	return b.Bytes()
})

// object is one of JSON that stands in this package.
func object(text string) map[string]any {
	var o map[string]any
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(fmt.Sprintf("weir: schema: %v in %s", err, text))
	}
	return o
}

// member is an object in an object of JSON, which is made if it is not there.
func member(of map[string]any, name string) map[string]any {
	o, ok := of[name].(map[string]any)
	if !ok {
		o = map[string]any{}
		of[name] = o
	}
	return o
}

// link is one of Markdown, or a text in backquotes.
var link = regexp.MustCompile("\\[([^\\]]*)\\]\\([^)]*\\)|`")

// property is what the schema says of a key, whose values are introduced by a word.
func property(k yamlread.Named, accepted string) map[string]any {
	p := object(k.Schema)
	text := k.Text + " " + accepted + ": " + k.Words + "."
	switch by := k.Otherwise(); {
	case strings.Contains(by, required):
		text += " " + strings.ToUpper(by[:1]) + by[1:] + "."
	case by != "":
		text += " Default: " + by + "."
	}
	p["description"] = link.ReplaceAllString(text, "$1")
	if k.Default != "" {
		p["default"] = object(`{"is": ` + k.Default + `}`)["is"]
	}
	if k.Examples != "" {
		p["examples"] = object(`{"are": ` + k.Examples + `}`)["are"]
	}
	return p
}

// references are the tables of keys for docs/configuration.md, by the sections that they stand in.
func references() map[string]string {
	all := map[string]string{}
	for _, k := range kinds() {
		var b strings.Builder
		byDefault := k.Kind != matchTable.Kind // whose keys have none
		if byDefault {
			b.WriteString("| key | type | default | |\n|---|---|---|---|\n")
		} else {
			b.WriteString("| key | value | |\n|---|---|---|\n")
		}
		for _, one := range k.keys {
			fmt.Fprintf(&b, "| `%s` | %s |", one.Name, one.Words)
			if byDefault {
				b.WriteString(" " + strings.TrimLeft(one.Otherwise()+" |", " "))
			}
			fmt.Fprintf(&b, " %s |\n", one.Text)
		}
		if k.section != "" {
			all[k.section] = b.String()
		}
	}
	return all
}
