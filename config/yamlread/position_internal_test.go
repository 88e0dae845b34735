package yamlread

import (
	"testing"
	"unicode"

	"go.yaml.in/yaml/v4"
)

// TestPositions looks up every character of a value in the file.
func TestPositions(t *testing.T) {
	for name, text := range map[string]string{
		"plain":       "k: a.b + c\n",
		"lines":       "k: a.b +\n  c +\n\n     dé.ü\n",
		"single":      "k: 'a + \"b\" + c'\n",
		"doubled":     "k: 'it''s + b'\n",
		"double":      "k: \"a + 'b'  + c\"\n",
		"escapes":     "k: \"a\\t+ \\x41\\u00e9\\\"b\\\" \\U0001F600 c\"\n",
		"continued":   "k: \"a + \\\n     b +\n   c\"\n",
		"literal":     "k: |\n  a +\n    b\n\n  c\n",
		"stripped":    "k: |-  # comment\n      a +\n      b\nz: 1\n",
		"indented":    "k: |2\n    a +\n   b\n",
		"folded":      "k: >-\n  a +\n  b +\n\n    c\n   d\n",
		"anchor":      "k: &x a + b\n",
		"tag":         "k: !!str a + b\n",
		"both":        "k: &x !!str 'a + b'\n",
		"flow":        "{z: [1, 2], k: 'a + b', y: c}\n",
		"crlf":        "k: |\r\n  a +\r\n  b\r\n",
		"wide":        "ключ: 1\nk: 'ä + b'\n",
		"environment": "k: 'a + b + $$'\n",
	} {
		s := New("f", []byte(text), Options{})
		top, ok := s.Root()
		if !ok {
			t.Errorf("%s: %v", name, s.Mistakes.All)
			continue
		}
		root := top.Node
		var n *yaml.Node
		for i := 0; i < len(root.Content); i += 2 {
			if root.Content[i].Value == "k" {
				n = root.Content[i+1]
			}
		}
		seen := 0
		for i, r := range n.Value {
			if unicode.IsSpace(r) {
				continue
			}
			line, column := s.position(n, i)
			here := []rune(s.line(line))
			if column < 1 || column > len(here) || here[column-1] != r && here[column-1] != '\\' {
				t.Errorf("%s: %q of %q is at %d:%d", name, r, n.Value, line, column)
			}
			seen++
		}
		if seen < 3 {
			t.Errorf("%s: only %d characters", name, seen)
		}
	}
}

// TestPositionsBehindTheEnvironment maps what stands behind a value that was put in.
func TestPositionsBehindTheEnvironment(t *testing.T) {
	env := func(string) (string, bool) { return "a long value", true }
	const text = "ab${X}cd$$ef${Y}"
	x, wrong := expand(text, env)
	if wrong != nil || x.text != "aba long valuecd$efa long value" {
		t.Fatalf("%q, %v", x.text, wrong)
	}
	for at, want := range map[int]int{0: 0, 1: 1, 2: 2, 5: 2, 13: 2, 14: 6, 15: 7, 16: 8, 17: 10, 18: 11, 19: 12, 25: 12} {
		if got := x.before(at); got != want {
			t.Errorf("the byte %d of the result stood at %d, want %d", at, got, want)
		}
	}
}

func TestExpand(t *testing.T) {
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"A": "1", "EMPTY": "", "REF": "${A}"}[name]
		return v, ok
	}
	for text, want := range map[string]string{
		"": "", "$": "$", "a$": "a$", "$a": "$a", "$$": "$", "$$$$": "$$", "$${A}": "${A}", "${A}${A}": "11", "x${A}y": "x1y",
		"${NONE:-d}": "d", "${NONE:-}": "", "${EMPTY:-d}": "d", "${EMPTY}": "", "${REF}": "${A}", "${NONE:-a:-b}": "a:-b", "$ {A}": "$ {A}",
	} {
		if x, wrong := expand(text, env); wrong != nil || x.text != want {
			t.Errorf("%q: %q, %v, want %q", text, x.text, wrong, want)
		}
	}
	for _, text := range []string{"${", "${A", "${}", "${1A}", "${A-b}", "${A B}", "${NONE}", "x$${A}${:-d}"} {
		if x, wrong := expand(text, env); wrong == nil {
			t.Errorf("%q is %q", text, x.text)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]string{
		"90s": "1m30s", "1h30m": "1h30m", "30d": "30d", "1w": "7d", "1w2d3h": "219h", "1d12h": "36h", "500ms": "500ms", "0s": "0s", "24h": "24h", "1.5h": "1h30m",
	} {
		if d, ok := ParseDuration(text); !ok || ShortDuration(d) != want {
			t.Errorf("%s: %s, %v, want %s", text, ShortDuration(d), ok, want)
		}
	}
	for _, text := range []string{"", "5", "d", "1.5d", "-1s", "+1s", "1d-1s", "1s1d", "1d1w", "99999999w", "1x", "1d 2h", "9223372036s9223372036s"} {
		if d, ok := ParseDuration(text); ok {
			t.Errorf("%q is %v", text, d)
		}
	}
}
