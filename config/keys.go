package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/config/yamlread"
)

// The keys that are looked for in several places.
const (
	keyLimit     = "limit"
	keyAlgorithm = "algorithm"
	keyLimits    = "limits"
	keyBurst     = "burst"
	keyRate      = "rate"
	keyPermits   = "permits"
	keyEvery     = "every"
	keyMonth     = "month"
	keyDay       = "day"
	keyWeekday   = "weekday"
	keyHour      = "hour"
	keyMinute    = "minute"
	keyPath      = "path"
	keyHost      = "host"
	keyMethod    = "method"
	keyMaxKeys   = "max_keys"
	keyStore     = "store"
	keyCluster   = "cluster"
	keyName      = "name"
	keyUsername  = "username"
	keyPassword  = "password"
	keyTLS       = "tls"
	keyEndpoints = "endpoints"
	keyDirectory = "directory"
	keyFile      = "file"
	keyReserve   = "reserve"
	keyPeers     = "peers"
	keyAddress   = "address"
	keyExempt    = "exempt"
	keyDeny      = "deny"
	keyQueue     = "queue"
	keyVersion   = "version"
	keyPolicy    = "policy"
	keyProtocol  = "protocol"
)

// What tables of keys say often.
const (
	unset    = "none"
	required = "required"
	no       = "false"
	yes      = "[true]"
	million  = "1000000"
	fewer    = "[100000]"
)

// key is a key of a mapping that is read into a T. Decoder, schema and reference are made of the tables of keys.
type key[T any] = yamlread.Key[*decoder, T]

// shape is what a key accepts: in words, and as a JSON Schema.
type shape struct{ words, schema string }

// form is a shape whose values are read as a V.
type form[V any] struct {
	shape

	read func(d *decoder, v yamlread.Value) (V, bool)
}

// tableOf is a table of a kind. Mistakes list its keys in their order.
func tableOf[T any](k yamlread.Kind, keys []key[T]) *yamlread.Table[*decoder, T] {
	t := yamlread.NewTable(k, keys...)
	slices.Sort(t.Kind.Keys)
	return t
}

// fill reads a mapping of a table. It returns false if it is none.
func fill[T any](d *decoder, v yamlread.Value, t *yamlread.Table[*decoder, T], to T) (*yamlread.Object, bool) {
	o, ok := d.Object(v, t.Kind)
	if ok {
		t.Fill(d, o, to)
	}
	return o, ok
}

// read is a key that is set to what it says, and left as it is after a mistake.
func read[T, V any](name string, f form[V], a yamlread.About, set func(T, V)) key[T] {
	return custom(name, f.shape, a, func(d *decoder, v yamlread.Value, to T) {
		if x, ok := f.read(d, v); ok {
			set(to, x)
		}
	})
}

// custom is a key that is read in a way of its own.
func custom[T any](name string, s shape, a yamlread.About, read func(d *decoder, v yamlread.Value, to T)) key[T] {
	a.Words, a.Schema = s.words, s.schema
	return key[T]{Name: name, Read: read, About: a}
}

// shown is a key that its mapping reads after all others, as it depends on them.
func shown[T any](name string, s shape, a yamlread.About) key[T] { return custom[T](name, s, a, nil) }

// orEnv is a value, or one of the environment.
func orEnv(words, schema string) shape {
	return shape{words, `{"anyOf": [` + schema + `, {"$ref": "#/$defs/env"}]}`}
}

// defined is what a definition of the schema describes.
func defined(words, name string) shape { return shape{words, `{"$ref": "#/$defs/` + name + `"}`} }

// textual is a text of which the schema says more.
func textual(words, more string) shape {
	if more != "" {
		more = ", " + more
	}
	return shape{words, `{"type": "string", "minLength": 1` + more + `}`}
}

// oneOrMany is a value or a list of them.
func oneOrMany(words, schema string) shape {
	return shape{words, `{"anyOf": [` + schema + `, {"type": "array", "minItems": 1, "items": ` + schema + `}]}`}
}

// oneOrManyURLs is a value or a list of them, each of which may be of the environment.
func oneOrManyURLs(words, schema string) shape {
	return shape{
		words, `{"anyOf": [` + schema + `, {"type": "array", "minItems": 1, "items": ` + orEnv("", schema).schema +
			`}, {"$ref": "#/$defs/env"}]}`,
	}
}

const expressionSchema = `{"type": "string", "minLength": 1, "maxLength": 4096}`

// keyShape is what requests are counted under, costShape how many permits they take.
func keyShape(words string) shape {
	return shape{
		words, `{"anyOf": [` + expressionSchema + `, {"type": "array", "minItems": 1, "maxItems": 16, "items": ` +
			expressionSchema + `}]}`,
	}
}

func costShape(words string) shape {
	return shape{words, `{"anyOf": [{"type": "integer", "minimum": 0, "maximum": 1000000000000000}, ` + expressionSchema + `]}`}
}

// named is a number from the first on, or one of the names for them.
func named(first int, names []string) shape {
	last := first + len(names) - 1
	return shape{
		fmt.Sprintf("%d to %d, or %#q to %#q", first, last, names[0], names[len(names)-1]),
		fmt.Sprintf(`{"anyOf": [{"type": "integer", "minimum": %d, "maximum": %d}, {"enum": [%s]}, {"$ref": "#/$defs/env"}]}`,
			first, last, quoted(names)),
	}
}

// quoted are words of JSON.
func quoted(words []string) string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = strconv.Quote(w)
	}
	return strings.Join(all, ", ")
}

// number is a whole number of what.
func number(lo, hi int64, what string) form[int64] {
	s := orEnv(fmt.Sprintf("number, %s to %s", yamlread.Count(lo), yamlread.Count(hi)),
		fmt.Sprintf(`{"type": "integer", "minimum": %d, "maximum": %d}`, lo, hi))
	return form[int64]{s, func(d *decoder, v yamlread.Value) (int64, bool) { return d.Number(v, lo, hi, what) }}
}

// within is the shape in other words.
func (s shape) within(words string) shape { return shape{words, s.schema} }

// The forms of several keys.
var (
	permitCount = number(1, algo.MaxPermits, "a number of permits")
	policyName  = accepting(textual("name of a policy", ""), "the name of a policy", "write the name of a policy", nil)
	keysAtATime = form[int64]{
		number(1, 1_000_000_000, "").within("number, 1 to 10^9"), number(1, 1_000_000_000, "a number of keys").read,
	}

	boolean = form[bool]{
		orEnv("true, false", `{"type": "boolean"}`),
		func(d *decoder, v yamlread.Value) (bool, bool) { return d.Boolean(v), true },
	}
)

// duration is a time.
func duration(lo, hi time.Duration) form[time.Duration] {
	words := "duration, " + yamlread.ShortDuration(lo) + " to " + yamlread.ShortDuration(hi)
	return form[time.Duration]{defined(words, "duration"), func(d *decoder, v yamlread.Value) (time.Duration, bool) {
		return d.Duration(v, lo, hi), true
	}}
}

// choice is one of several words.
func choice(words []string, hints map[string]string) form[string] {
	s := orEnv("`"+strings.Join(words, "`, `")+"`", `{"enum": [`+quoted(words)+`]}`)
	return form[string]{s, func(d *decoder, v yamlread.Value) (string, bool) { return d.Choice(v, words, hints) }}
}

// accepting is a text of a shape, which is what must says. Default of accepted: nil, any text is.
func accepting(s shape, must, fix string, accepted func(text string) bool) form[string] {
	return form[string]{s, func(d *decoder, v yamlread.Value) (string, bool) {
		x, ok := d.Text(v, must, fix)
		if ok && accepted != nil && !accepted(x.Text) {
			d.Wrong(v, "must be "+must, fix)
		}
		return x.Text, ok
	}}
}

// path is where a file or a directory is.
func path(must, fix string) form[string] {
	return form[string]{textual("path", ""), func(d *decoder, v yamlread.Value) (string, bool) {
		return d.file(v, must, fix), true
	}}
}

// secret is a text that is never shown, and may be in a variable.
func secret(variable string) form[string] {
	return form[string]{
		shape{"text", `{"type": ["string", "number", "boolean"]}`},
		func(d *decoder, v yamlread.Value) (string, bool) { return d.secret(v, variable), true },
	}
}

// need is a key that must be given beside another one, or always if that is "": why, and what to do where it is missing.
type need struct{ beside, key, why, fix string }

// needs adds a mistake for each key that is missing.
func (d *decoder) needs(o *yamlread.Object, all []need) {
	for _, n := range all {
		_, beside := o.Get(n.beside)
		if _, given := o.Get(n.key); !given && (beside || n.beside == "") {
			o.Missing(n.key, "is missing: "+n.why, n.fix)
		}
	}
}

// kindOf is what schema and reference need of a kind.
type kindOf struct {
	*yamlread.Kind

	name    string // of its definition in the schema
	section string // of docs/configuration.md that has its keys, "" for none
	text    string // what it is
	rules   string // what the schema says beside its keys
	keys    []yamlread.Named
	needs   []need
}

// kinds are all of them.
func kinds() []kindOf {
	return []kindOf{
		{fileTable.Kind, "file", "The file", "A configuration file.", fileRules, fileTable.About(), fileNeeds},
		{limitsTable.Kind, keyLimits, "", "Limits: limit, or limits.", limitsRules, limitsTable.About(), nil},
		{
			policyTable.Kind, "policy", "Policies", "One or several limits with a name, each of which has a state for every key.",
			policyRules, policyTable.About(), nil,
		},
		{limitTable.Kind, keyLimit, "Limits", "One limit of a policy.", limitRules(), limitTable.About(), nil},
		{
			tiersTable.Kind, "tiers", "Tiers", "The tiers of a policy: by chooses one, every other key is the name of a tier.",
			tiersRules, tiersTable.About(), tiersNeeds,
		},
		{queueTable.Kind, keyQueue, "Queue", "Who waits, in which order, for how long.", "{}", queueTable.About(), nil},
		{
			lockoutTable.Kind, "lockout", "Lockout", "Locks out a key that is refused again and again.",
			"{}", lockoutTable.About(), lockoutNeeds,
		},
		{ruleTable.Kind, "rule", "Rules", "Which limits apply to which requests.", ruleRules, ruleTable.About(), nil},
		{
			matchTable.Kind, "match", "Match",
			"What can be told of a request without an expression. Each entry is one value or a list.", "{}",
			matchTable.About(), nil,
		},
		{
			useTable.Kind, "use", "Uses of a policy", "A policy with a key or a cost of its own.", "{}", useTable.About(),
			useNeeds,
		},
		{
			storeTable.Kind, keyStore, "Store", "Where the states of shared policies are kept: url, or addresses.", storeRules,
			storeTable.About(), nil,
		},
		{leasedTable.Kind, "leased", "Leased", "Options of leased policies.", "{}", leasedTable.About(), nil},
		{optimisticTable.Kind, "optimistic", "Optimistic", "Options of optimistic policies.", "{}", optimisticTable.About(), nil},
		{
			clusterTable.Kind, keyCluster, "Cluster",
			"How this process takes part in a cluster: directory, or endpoints; or that it keeps the limits alone: file.",
			clusterRules, clusterTable.About(), clusterNeeds,
		},
	}
}
