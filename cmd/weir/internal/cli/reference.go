package cli

import "github.com/weirhq/weir/cmd/weir/internal/reference"

//go:generate go run ../reference/generate ../../../../docs/reference

// Reference returns the pages of docs/reference by the names of their files. They are the same on every machine.
func Reference() map[string]string { return reference.Pages(newRoot()) }
