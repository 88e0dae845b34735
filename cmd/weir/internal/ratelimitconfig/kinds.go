package ratelimitconfig

import (
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
)

// The keys of the format.
const (
	keyDomain         = "domain"
	keyDescriptors    = "descriptors"
	keyKey            = "key"
	keyValue          = "value"
	keyRateLimit      = "rate_limit"
	keyShadowMode     = "shadow_mode"
	keyQuotaMode      = "quota_mode"
	keyDetailedMetric = "detailed_metric"
	keyValueToMetric  = "value_to_metric"
	keyShareThreshold = "share_threshold"
	keyMetadata       = "metadata"
	keyUnit           = "unit"
	keyRequests       = "requests_per_unit"
	keyUnlimited      = "unlimited"
	keyName           = "name"
	keyReplaces       = "replaces"
	// Those that envoyproxy/ratelimit does not have.
	keyMultiplier  = "unit_multiplier"
	keyAlgorithm   = "algorithm"
	keyBurst       = "burst"
	keyConsistency = "consistency"
)

// kind is a kind of mapping.
type kind struct {
	what, example string
	keys          []string
}

var (
	fileKind = &kind{
		"the configuration of a domain", "domain: a name, and descriptors: below it",
		[]string{keyDomain, keyDescriptors},
	}
	descriptorKind = &kind{
		"a descriptor", "key: a name, and rate_limit: or descriptors: below it", []string{
			keyKey, keyValue, keyRateLimit, keyDescriptors, keyShadowMode, keyQuotaMode, keyDetailedMetric, keyValueToMetric,
			keyShareThreshold, keyMetadata,
		},
	}
	limitKind = &kind{
		"a limit", "unit: minute, and requests_per_unit: 100 below it", []string{
			keyUnit, keyRequests, keyUnlimited, keyName, keyReplaces, keyMultiplier, keyAlgorithm, keyBurst,
			keyConsistency,
		},
	}
	replacesKind = &kind{"the name of a limit", "name: the name of another limit", []string{keyName}}

	kinds = []*kind{fileKind, descriptorKind, limitKind, replacesKind}
	own   = []string{keyMultiplier, keyAlgorithm, keyBurst, keyConsistency}
)

// known reports whether a kind of mapping has a field. envoyproxy/ratelimit accepts all keys everywhere, and takes no notice
// of those that stand in the wrong place.
func (d *decoder) known(f field, k *kind) bool {
	if slices.Contains(k.keys, f.name) {
		return true
	}
	for _, other := range kinds {
		if !slices.Contains(other.keys, f.name) {
			continue
		}
		message, fix := "has no effect in "+k.what+": it belongs in "+other.what, "move it there, or remove it"
		if slices.Contains(own, f.name) {
			d.complain(&d.mistakes, field{f.name, f.key, f.key}, message, fix)
		} else {
			d.complain(&d.warnings, field{f.name, f.key, f.key}, message, fix)
		}
		return false
	}
	fix := "accepted are " + oneOf(k.keys)
	if name := nearest(f.name, k.keys); name != "" {
		fix = "did you mean " + strconv.Quote(name) + "?"
	}
	d.complain(&d.mistakes, field{shorten(f.name), f.key, f.key}, "unknown key in "+k.what, fix)
	return false
}

// nearest is the word that somebody who wrote s may have meant, "" if none is near.
func nearest(s string, words []string) string {
	if len(s) > 64 {
		return ""
	}
	s = strings.ToLower(s)
	best, least := "", 1+max(1, len(s)/3)
	for _, w := range words {
		if n := levenshtein.ComputeDistance(s, w); n < least {
			best, least = w, n
		}
	}
	return best
}

// oneOf lists words: "a, b or c".
func oneOf(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
