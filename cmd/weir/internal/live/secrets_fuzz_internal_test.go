package live

import (
	"net/url"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// FuzzTextWithoutPasswords: whatever is around a password, it is not told if a reader of YAML takes it for one.
func FuzzTextWithoutPasswords(f *testing.F) {
	for _, seed := range []string{
		"store:\n  password: ^ # not this\n  user: x\n", "store: {url: redis://h, password: ^, user: x}", "store:\n  url: redis://u:^@h:1/0\n",
		"store: {\"password\":\"a^\", user: 'x'}", "a: 1\n---\nstore:\n  password: >-\n    ^\n", "x: &p ^\nstore:\n  ? password\n  : *p\n",
		"x: '{password: '\nsentinel_password: \"^\"\n", "# password: x\nurls: [redis://^@h, 'rediss://a:b^c@[::1]:2']\n",
	} {
		before, after, _ := strings.Cut(seed, "^")
		f.Add(before, after)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "p4ss"
		if strings.Contains(before, secret) || strings.Contains(after, secret) {
			return
		}
		text := before + secret + after
		var document yaml.Node
		if yaml.Unmarshal([]byte(text), &document) != nil || !isTold(&document, secret) {
			return
		}
		if told := withoutPasswords(text); strings.Contains(told, secret) {
			t.Fatalf("%q is told as %q", text, told)
		}
	})
}

// isTold reports whether a password in a node, or in those below, has a secret.
func isTold(n *yaml.Node, secret string) bool {
	if n.Kind == yaml.ScalarNode {
		u, err := url.Parse(n.Value)
		if err != nil || u.Scheme == "" || u.User == nil {
			return false
		}
		password, has := u.User.Password()
		return strings.Contains(password, secret) || !has && strings.Contains(u.User.Username(), secret)
	}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && strings.HasSuffix(n.Content[i-1].Value, "password") &&
			child.Kind == yaml.ScalarNode && strings.Contains(child.Value, secret) || isTold(child, secret) {
			return true
		}
	}
	return false
}
