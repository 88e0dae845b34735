//go:build !race

package store_test

import "testing"

func TestMemoryConformsForLong(t *testing.T) { memoryConforms(t, 20_000) }

func TestLockedConformsForLong(t *testing.T) { lockedConforms(t, 20_000) }
