package httplimit

import "testing"

func TestPrefersText(t *testing.T) {
	for _, c := range []struct {
		accept []string
		want   bool
	}{
		{nil, false},
		{[]string{""}, false},
		{[]string{"*/*"}, false},
		{[]string{"text/plain"}, true},
		{[]string{"TEXT/Plain;charset=utf-8"}, true},
		{[]string{"text/*"}, true},
		{[]string{"application/json"}, false},
		{[]string{"application/json, text/plain"}, false},
		{[]string{"application/json;q=0.5, text/plain"}, true},
		{[]string{"application/json;q=0.5", "text/plain;q=0.6"}, true},
		{[]string{"application/problem+json;q=0.9, text/plain ; q=0.8"}, false},
		{[]string{"text/plain;q=0"}, false},
		{[]string{"text/plain;q=0.9, */*;q=0.1"}, true},
		{[]string{"text/plain;q=0.1, */*;q=0.9"}, false},
		{[]string{"application/problem+json;q=0, */*"}, true},
		{[]string{"application/json;q=0, application/*;q=0.8, text/*;q=0.7"}, true},
		{[]string{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}, false},
		{[]string{"text/plain;q=2"}, false},
		{[]string{"text/plain;q=0.5555"}, false},
		{[]string{"text/plain;q=x"}, false},
		{[]string{"text/plain;q=0.x"}, false},
		{[]string{";;;,,,/=q,text/plain"}, true},
	} {
		if got := prefersText(c.accept); got != c.want {
			t.Errorf("prefersText(%q) = %v", c.accept, got)
		}
	}
}
