package ratelimitconfig

import (
	"strings"

	"github.com/weirhq/weir/config/yamlread"
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

var (
	fileKind = &yamlread.Kind{
		What: "the configuration of a domain", Example: "domain: a name, and descriptors: below it",
		Keys: []string{keyDomain, keyDescriptors},
	}
	descriptorKind = &yamlread.Kind{
		What: "a descriptor", Example: "key: a name, and rate_limit: or descriptors: below it", Keys: []string{
			keyKey, keyValue, keyRateLimit, keyDescriptors, keyShadowMode, keyQuotaMode, keyDetailedMetric, keyValueToMetric,
			keyShareThreshold, keyMetadata,
		},
	}
	limitKind = &yamlread.Kind{
		What: "a limit", Example: "unit: minute, and requests_per_unit: 100 below it", Keys: []string{
			keyUnit, keyRequests, keyUnlimited, keyName, keyReplaces, keyMultiplier, keyAlgorithm, keyBurst,
			keyConsistency,
		},
	}
	replacesKind = &yamlread.Kind{
		What: "the name of a limit", Example: "name: the name of another limit",
		Keys: []string{keyName},
	}

	kinds = []*yamlread.Kind{fileKind, descriptorKind, limitKind, replacesKind}
	own   = []string{keyMultiplier, keyAlgorithm, keyBurst, keyConsistency}
)

// words are how a file says what is wrong with its YAML.
var words = yamlread.Words{
	Unknown:  yamlread.OfKey{Message: "unknown key in {what}", Path: true, Value: true},
	Twice:    yamlread.OfKey{Message: "stands here twice: first in line {first}", Value: true},
	Merge:    "must be a mapping, or a list of mappings, that << merges into this one",
	MergeFix: "write <<: *anchor",
	NotUTF8:  "is not UTF-8",
	Second:   "write a file for each domain",
	Syntax: func(message string) string {
		switch {
		case strings.Contains(message, "alias"):
			return `put a value that begins with * in quotes: "*"`
		case strings.Contains(message, "cannot start any token"):
			return "indent with spaces, and put the value in quotes"
		}
		return ""
	},
}
