package cmp_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDiff(t *testing.T) {
	one := map[string]string{"a": "b"}
	if d := cmp.Diff(one, map[string]string{"a": "b"}); d != "" {
		t.Errorf("equal maps differ: %s", d)
	}
	if d := cmp.Diff(one, map[string]string{"a": "c"}); d != "map[a:b] is not map[a:c]" {
		t.Errorf("different maps: %q", d)
	}
}
