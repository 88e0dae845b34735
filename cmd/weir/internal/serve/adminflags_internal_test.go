package serve

import (
	"log/slog"
	"testing"
)

// TestHashesWithoutRefusalLog: --otlp-keys hashed needs the hashes of keys with --refusal-log off as well.
func TestHashesWithoutRefusalLog(t *testing.T) {
	f := adminFlags{refusalKeys: "hashed"}
	l, err := f.refusals(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := l.Hash("a"), l.Hash("b"); a == "" || a == b {
		t.Errorf("%q %q", a, b)
	}
}
