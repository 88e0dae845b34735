package config

import (
	_ "embed"
	"slices"
)

//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema of the format (draft 2020-12), for editors. It accepts every file that [Parse] accepts, and
// refuses what has the wrong structure. Only Parse checks what needs more than that, such as names of policies and expressions.
// Merge keys and aliases must be resolved before.
func Schema() []byte { return slices.Clone(schema) }
